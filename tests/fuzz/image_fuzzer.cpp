#include <zlib.h>

#include <cstring>
#include <string>

#include "kindling/base/error.h"
#include "kindling/formats/image.h"

namespace {

// Makes the checksums of a PNG file's chunks right, which mutations break and which would hide the rest.
void repair_checksums(std::string& bytes) {
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  for (std::size_t at = 8; at + 12 <= bytes.size();) {
    const std::size_t size = (std::size_t{data[at]} << 24) | (std::size_t{data[at + 1]} << 16) |
                             (std::size_t{data[at + 2]} << 8) | data[at + 3];
    if (size > bytes.size() - at - 12) return;
    const auto crc = static_cast<std::uint32_t>(crc32(0, data + at + 4, static_cast<uInt>(size + 4)));
    for (std::size_t i = 0; i < 4; ++i) bytes[at + 8 + size + i] = static_cast<char>(crc >> (24 - 8 * i));
    at += size + 12;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.starts_with("\x89PNG")) repair_checksums(bytes);
  constexpr std::int64_t kChannels[] = {0, 1, 3};
  const kindling::ImageOptions options{.channels = kChannels[size % 3],
                                       .max_pixels = 1 << 18,
                                       .wanted_size = {8, static_cast<std::int64_t>(size % 16)}};
  try {
    kindling::parse_image(bytes, "fuzz", options);
  } catch (const kindling::DataError&) {
    // Refused: the other good outcome.
  }
  if (bytes.starts_with("\x89PNG") && size < 512) try {
      kindling::parse_mask(bytes, "fuzz");
    } catch (const kindling::DataError&) {
    }
  return 0;
}
