#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

// Short texts of several things, of numbers, and in lower case.
namespace kindling {

// Returns the texts of elements with `gap` between them: "a, b, c".
template <class Things, class TextOf = std::identity>
std::string joined(const Things& things, std::string_view gap, TextOf text_of = {}) {
  std::string text;
  bool is_first = true;
  for (const auto& thing : things) {
    if (!is_first) text += gap;
    text += text_of(thing);
    is_first = false;
  }
  return text;
}

// "[2, 3]"
inline std::string shape_text(std::span<const std::int64_t> shape) {
  return "[" + joined(shape, ", ", [](std::int64_t size) { return std::to_string(size); }) + "]";
}

// Returns a number with its unit: "1 key", "2 keys".
std::string counted(std::integral auto count, std::string_view thing) {
  return std::to_string(count).append(" ").append(thing).append(count == 1 ? "" : "s");
}

// Returns the text with the letters A to Z in lower case, in every locale.
inline std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

}  // namespace kindling
