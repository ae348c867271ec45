#include "formats/images/stored_png.h"

#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>

#include "formats/zip/inflate.h"

namespace kindling {
namespace {

constexpr std::size_t kMaxChunkBytes = 8'000'000;  // libpng checks larger ones, as png_image.cpp says
// libpng inflates larger images row by row, which takes less memory.
constexpr std::uint64_t kMaxRowBytes = std::uint64_t{64} << 20;
constexpr std::size_t kMaxDeflateRatio = 1032;

// Of deflate, with blocks that are stored.
constexpr std::size_t kMaxBlock = 65535, kBlockHeader = 5, kStreamHeader = 2, kChecksum = 4;

std::uint32_t read_png_number(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<std::uint8_t>(bytes[at + i]);
  return value;
}

struct PngParts {
  std::string_view before_pixels, after_pixels;
  std::string compressed;
};

// Returns nothing if a chunk is damaged, too large or missing, or if others separate those of the pixels.
std::optional<PngParts> split_png(std::string_view bytes) {
  constexpr std::size_t kSignature = 8, kAroundData = 12;  // length, type and checksum
  PngParts parts;
  std::string_view last_type;
  for (std::size_t at = kSignature; at + kAroundData <= bytes.size();) {
    const std::size_t size = read_png_number(bytes, at), end = at + kAroundData + size;
    if (size > kMaxChunkBytes || end > bytes.size()) return {};
    const auto* const checked = reinterpret_cast<const Bytef*>(bytes.data() + at + 4);
    if (crc32(0, checked, static_cast<uInt>(4 + size)) != read_png_number(bytes, end - 4)) return {};
    const std::string_view type = bytes.substr(at + 4, 4);
    if (type == "IDAT") {
      if (parts.before_pixels.empty())
        parts.before_pixels = bytes.substr(0, at);
      else if (last_type != "IDAT")
        return {};
      parts.compressed += bytes.substr(at + 8, size);
      parts.after_pixels = bytes.substr(end);
    }
    if (type == "IEND") return parts;
    last_type = type;
    at = end;
  }
  return {};
}

// Returns the bytes of all rows with their filters; 0 if the image is interlaced, too large or unknown.
std::size_t row_bytes_of(std::string_view png) {
  constexpr std::size_t kHeaderEnd = 33;
  if (png.size() < kHeaderEnd || png.substr(12, 4) != "IHDR" || png[28] != 0) return 0;
  constexpr std::uint64_t kChannels[] = {1, 0, 3, 1, 2, 0, 4};  // of the color types
  const auto depth = static_cast<std::uint8_t>(png[24]), color = static_cast<std::uint8_t>(png[25]);
  if (color >= std::size(kChannels)) return 0;
  const std::uint64_t row = 1 + (read_png_number(png, 16) * depth * kChannels[color] + 7) / 8;
  const std::uint64_t height = read_png_number(png, 20);
  return height > kMaxRowBytes / row ? 0 : static_cast<std::size_t>(row * height);
}

// libdeflate accepts references to bytes before the window that the stream promises; zlib does not.
bool fits_window(std::string_view compressed, std::size_t size) {
  const int bits = 8 + (static_cast<std::uint8_t>(compressed[0]) >> 4);
  return bits >= 15 || size <= std::size_t{1} << bits;
}

bool is_plausible(std::string_view compressed, std::size_t row_bytes) {
  return !compressed.empty() && compressed.size() < row_bytes &&
         row_bytes / kMaxDeflateRatio <= compressed.size() && fits_window(compressed, row_bytes);
}

std::size_t header_bytes_of_stream(std::size_t row_bytes) {
  return kStreamHeader + (row_bytes + kMaxBlock - 1) / kMaxBlock * kBlockHeader;
}

// Expects the rows at the end of the stream, and moves each block of them to its place after its header.
void store_blocks(char* stream, std::size_t row_bytes) {
  const char* rows = stream + header_bytes_of_stream(row_bytes);
  for (const char byte : {'\x78', '\x01'}) *stream++ = byte;
  while (row_bytes > 0) {
    const std::size_t size = std::min(row_bytes, kMaxBlock);
    row_bytes -= size;
    const std::size_t is_last = row_bytes == 0 ? 1 : 0;
    for (const std::size_t byte : {is_last, size & 0xff, size >> 8, ~size & 0xff, ~size >> 8 & 0xff})
      *stream++ = static_cast<char>(byte);
    std::memmove(stream, rows, size);
    stream += size;
    rows += size;
  }
}

}  // namespace

std::string store_png_pixels(std::string_view bytes) {
  const auto parts = split_png(bytes);
  if (!parts) return {};
  const std::string& compressed = parts->compressed;
  const std::size_t row_bytes = row_bytes_of(parts->before_pixels);
  if (!is_plausible(compressed, row_bytes)) return {};

  const std::size_t headers = header_bytes_of_stream(row_bytes);
  const std::size_t chunk = headers + row_bytes + kChecksum;
  std::string file(parts->before_pixels);
  file.reserve(file.size() + chunk + parts->after_pixels.size() + 12);
  for (int shift = 24; shift >= 0; shift -= 8) file += static_cast<char>(chunk >> shift);
  file += "IDAT";
  const std::size_t stream = file.size();
  file.resize(stream + headers + row_bytes);
  const Inflated inflated =
      inflate_whole(compressed.data(), compressed.size(), &file[stream + headers], row_bytes);
  if (inflated.error || inflated.size != row_bytes) return {};
  store_blocks(&file[stream], row_bytes);
  file.append(2 * kChecksum, '\0');  // of the rows and of the chunk
  file += parts->after_pixels;
  return file;
}

}  // namespace kindling
