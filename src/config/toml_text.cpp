#include "config/toml_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace kindling::config {
namespace {

constexpr bool is_continuation(unsigned char byte) { return (byte & 0xC0) == 0x80; }

// C0, DEL and C1: the last are two bytes, and some terminals obey them.
bool is_control(std::string_view sequence) {
  const auto first = static_cast<unsigned char>(sequence[0]);
  if (sequence.size() == 1) return first < 0x20 || first == 0x7F;
  return sequence.size() == 2 && first == 0xC2 && static_cast<unsigned char>(sequence[1]) < 0xA0;
}

std::string escaped(std::string_view sequence) {
  if (sequence == "\n") return "\\n";
  if (sequence == "\t") return "\\t";
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  const auto code = static_cast<unsigned char>(sequence.back());  // of C1 too: the second byte is the code
  return {'\\', 'u', '0', '0', kDigits[code >> 4U], kDigits[code & 0xFU]};
}

}  // namespace

std::size_t utf8_sequence(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) -> unsigned char {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0;
  };
  const unsigned char first = byte(0);
  if (at >= text.size()) return 0;
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return is_continuation(byte(1)) ? 2 : 0;
  if (first >= 0xE0 && first < 0xF0) {
    const bool overlong = first == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = first == 0xED && byte(1) >= 0xA0;
    return is_continuation(byte(1)) && is_continuation(byte(2)) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first < 0xF5) {
    const bool overlong = first == 0xF0 && byte(1) < 0x90;
    const bool too_large = first == 0xF4 && byte(1) >= 0x90;
    const bool whole = is_continuation(byte(1)) && is_continuation(byte(2)) && is_continuation(byte(3));
    return whole && !overlong && !too_large ? 4 : 0;
  }
  return 0;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = utf8_sequence(text, 0);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string toml_text(bool value) { return value ? "true" : "false"; }

std::string toml_text(std::int64_t value) { return std::to_string(value); }

std::string toml_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  std::string text(digits.data(), end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";  // else it would be an integer
  return text;
}

std::string toml_text(std::string_view value) {
  std::string text = "\"";
  for (std::size_t at = 0; at < value.size();) {
    const std::size_t bytes = std::max<std::size_t>(1, utf8_sequence(value, at));
    const std::string_view sequence = value.substr(at, bytes);
    if (is_control(sequence)) {
      text += escaped(sequence);
    } else {
      if (sequence == "\"" || sequence == "\\") text += '\\';
      text += sequence;
    }
    at += bytes;
  }
  return text + '"';
}

std::string toml_text(const std::string& value) { return toml_text(std::string_view(value)); }

std::string toml_text(const std::filesystem::path& value) {
  return toml_text(std::string_view(value.native()));
}

std::string toml_key(std::string_view key) {
  const auto is_bare = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  const bool bare = !key.empty() && std::all_of(key.begin(), key.end(), is_bare);
  return bare ? std::string(key) : toml_text(key);
}

std::string shown_line(std::string_view text) {
  std::string shown;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = utf8_sequence(text, at);
    const std::string_view sequence = text.substr(at, std::max<std::size_t>(1, bytes));
    if (sequence == "\t") {
      shown += ' ';
    } else {
      shown += bytes == 0 || is_control(sequence) ? std::string_view("?") : sequence;
    }
    at += sequence.size();
  }
  return shown;
}

}  // namespace kindling::config
