#include <zlib.h>

#include <new>

#include "formats/zip/inflate.h"

namespace kindling {

Inflated inflate_whole(const char* bytes, std::size_t size, char* out, std::size_t most) {
  uLongf count = most;
  const int result =
      ::uncompress(reinterpret_cast<Bytef*>(out), &count, reinterpret_cast<const Bytef*>(bytes), size);
  if (result == Z_MEM_ERROR) throw std::bad_alloc();
  if (result == Z_BUF_ERROR) return {.error = InflateError::too_large};
  if (result != Z_OK) return {.error = InflateError::damaged};
  return {.size = count};
}

bool has_libdeflate() noexcept { return false; }

}  // namespace kindling
