#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kindling {

struct Utf8Character {
  std::size_t bytes = 0;   // 0: the text is empty, or does not begin with UTF-8
  std::int32_t code = -1;  // the code point

  // C0, DEL and C1, which some terminals interpret too.
  bool is_control() const { return (code >= 0 && code < 0x20) || (code >= 0x7F && code < 0xA0); }
};

// Returns the first character of a text.
Utf8Character first_character(std::string_view text);

// Calls visit(character, its bytes) for each character. An invalid byte is a character with `bytes` 0.
template <class Visit>
void for_each_character(std::string_view text, Visit&& visit) {
  while (!text.empty()) {
    const Utf8Character character = first_character(text);
    const std::string_view bytes = text.substr(0, character.bytes == 0 ? 1 : character.bytes);
    visit(character, bytes);
    text.remove_prefix(bytes.size());
  }
}

inline bool is_utf8(std::string_view text) {
  bool is_valid = true;
  for_each_character(text, [&](const Utf8Character& character, std::string_view) {
    is_valid = is_valid && character.bytes > 0;
  });
  return is_valid;
}

// Returns the text with U+FFFD for each invalid byte.
inline std::string valid_utf8(std::string_view text) {
  std::string valid;
  for_each_character(text, [&](const Utf8Character& character, std::string_view bytes) {
    valid += character.bytes > 0 ? bytes : std::string_view("\xEF\xBF\xBD");
  });
  return valid;
}

}  // namespace kindling
