#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>

namespace kindling {

inline std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

inline std::string png_chunk(const std::string& name, const std::string& content) {
  const std::string checked = name + content;
  const auto* data = reinterpret_cast<const unsigned char*>(checked.data());
  return big_endian(static_cast<std::uint32_t>(content.size())) + checked +
         big_endian(static_cast<std::uint32_t>(crc32(0, data, static_cast<uInt>(checked.size()))));
}

// A zlib stream of one stored block, at most 65535 bytes.
inline std::string stored_zlib(const std::string& content) {
  const auto size = static_cast<std::uint16_t>(content.size()), inverse = static_cast<std::uint16_t>(~size);
  std::string bytes("\x78\x01\x01", 3);
  for (const std::uint16_t value : {size, inverse}) {
    bytes += static_cast<char>(value & 0xff);
    bytes += static_cast<char>(value >> 8);
  }
  const auto* data = reinterpret_cast<const unsigned char*>(content.data());
  return bytes + content +
         big_endian(static_cast<std::uint32_t>(adler32(1, data, static_cast<uInt>(content.size()))));
}

// A zlib stream as other programs write it.
inline std::string compressed_zlib(const std::string& content) {
  uLongf size = compressBound(content.size());
  std::string bytes(size, '\0');
  compress(reinterpret_cast<Bytef*>(bytes.data()), &size, reinterpret_cast<const Bytef*>(content.data()),
           content.size());
  return bytes.substr(0, size);
}

// What a PNG file holds; `rows` is the content of IDAT: each row begins with its filter. They are stored,
// unless `stream` has them as a zlib stream.
struct PngFile {
  std::uint32_t width = 1, height = 1;
  int depth = 8, color = 0;  // PNG's numbers: 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGBA
  std::string rows{}, before_rows{};
  int interlace = 0;
  std::string stream{};
};

inline std::string png_bytes(const PngFile& file) {
  std::string header = big_endian(file.width) + big_endian(file.height);
  for (const int value : {file.depth, file.color, 0, 0, file.interlace}) header += static_cast<char>(value);
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + file.before_rows +
         png_chunk("IDAT", file.stream.empty() ? stored_zlib(file.rows) : file.stream) +
         png_chunk("IEND", "");
}

}  // namespace kindling
