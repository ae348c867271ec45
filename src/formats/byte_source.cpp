#include "formats/byte_source.h"

#include <cstring>
#include <memory>
#include <utility>

#include "kindling/base/file.h"

namespace kindling {

ByteSource source_of(const std::filesystem::path& path) {
  const auto file = std::make_shared<const InputFile>(path);
  return {file->size(),
          [file](std::size_t offset, void* out, std::size_t size) { file->read(offset, out, size); }};
}

ByteSource source_of_bytes(std::string bytes) {
  const auto held = std::make_shared<const std::string>(std::move(bytes));
  return {held->size(), [held](std::size_t offset, void* out, std::size_t size) {
            if (size > 0) std::memcpy(out, held->data() + offset, size);
          }};
}

}  // namespace kindling
