#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "kindling/base/number_text.h"

// Numbers in pages of runs.
namespace kindling {

// "1,359"
inline std::string count_text(double number) {
  std::string text = fixed_text(number, 0);
  for (auto at = static_cast<std::int64_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

// Returns NaN for a text that is not a number.
inline double number_or_nan(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return text.empty() || end != text.c_str() + text.size() ? std::nan("") : value;
}

}  // namespace kindling
