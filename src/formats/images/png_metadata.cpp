#include "formats/images/png_metadata.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "formats/images/exif.h"
#include "formats/zip/inflate.h"

namespace kindling {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 20;
constexpr std::string_view kXmp = "XML:com.adobe.xmp", kRawExif = "Raw profile type exif";

// Removes what is before the first zero byte, and that byte, and returns it.
std::string_view take_word(std::string_view& bytes) {
  const std::string_view word = bytes.substr(0, bytes.find('\0'));
  bytes.remove_prefix(std::min(word.size() + 1, bytes.size()));
  return word;
}

// Empty if it is damaged or too large.
std::string inflated(std::string_view compressed) {
  std::string text(kMaxTextBytes, '\0');
  const Inflated result = inflate_whole(compressed.data(), compressed.size(), text.data(), text.size());
  text.resize(result.error ? 0 : result.size);
  return text;
}

// The text of a chunk tEXt, zTXt or iTXt after its keyword.
std::string text_of(std::string_view type, std::string_view content) {
  if (type == "tEXt") return std::string(content);
  if (type == "zTXt") return content.empty() ? "" : inflated(content.substr(1));
  if (content.size() < 2) return "";
  const bool is_compressed = content[0] != '\0';
  content.remove_prefix(2);
  take_word(content);  // language
  take_word(content);  // keyword in it
  return is_compressed ? inflated(content) : std::string(content);
}

// The bytes of "\nexif\n      78\n45786966…".
std::string bytes_of_profile(std::string_view text) {
  for (int line = 0; line < 3; ++line) text.remove_prefix(std::min(text.find('\n') + 1, text.size()));
  std::string bytes;
  int high = -1;
  for (const char c : text) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) continue;
    if (high >= 0) bytes += static_cast<char>(16 * high + digit);
    high = high < 0 ? digit : -1;
  }
  return bytes;
}

}  // namespace

int png_orientation(std::string_view bytes) {
  constexpr std::size_t kSignature = 8, kAroundData = 12;  // length, type and checksum
  Orientation orientation;
  for (std::size_t at = kSignature; at <= bytes.size() && bytes.size() - at >= kAroundData;) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<std::uint8_t>(bytes[at + i]);
    if (bytes.size() - at - kAroundData < length) break;
    const std::string_view type = bytes.substr(at + 4, 4);
    std::string_view content = bytes.substr(at + 8, length);
    at += kAroundData + length;
    if (type == "eXIf") orientation.add_exif(content);
    if (type != "tEXt" && type != "zTXt" && type != "iTXt") continue;
    const std::string_view keyword = take_word(content);
    if (keyword == kRawExif) orientation.add_exif(bytes_of_profile(text_of(type, content)));
    if (keyword == kXmp) orientation.add_xmp(text_of(type, content));
  }
  return orientation.number();
}

}  // namespace kindling
