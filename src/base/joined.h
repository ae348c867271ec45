#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

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

}  // namespace kindling
