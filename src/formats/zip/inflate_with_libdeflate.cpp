#include <libdeflate.h>

#include <memory>
#include <new>

#include "formats/zip/inflate.h"

namespace kindling {

Inflated inflate_whole(const char* bytes, std::size_t size, char* out, std::size_t most) {
  const std::unique_ptr<libdeflate_decompressor, void (*)(libdeflate_decompressor*)> decompressor(
      libdeflate_alloc_decompressor(), libdeflate_free_decompressor);
  if (!decompressor) throw std::bad_alloc();
  std::size_t count = 0;
  switch (libdeflate_zlib_decompress(decompressor.get(), bytes, size, out, most, &count)) {
    case LIBDEFLATE_SUCCESS:
      return {.size = count};
    case LIBDEFLATE_INSUFFICIENT_SPACE:
      return {.error = InflateError::too_large};
    default:
      return {.error = InflateError::damaged};
  }
}

bool has_libdeflate() noexcept { return true; }

}  // namespace kindling
