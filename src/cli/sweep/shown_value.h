#pragma once

#include <string>

#include "kindling/base/text.h"

namespace kindling {

// Returns a TOML value as tables show it: on one line, and a string without its quotes.
inline std::string shown_value(const std::string& toml) {
  const bool is_string = toml.size() >= 2 && toml.front() == '"' && toml.back() == '"' &&
                         toml.find('\\') == std::string::npos && toml.find('"', 1) == toml.size() - 1;
  return one_line(is_string ? toml.substr(1, toml.size() - 2) : toml);
}

}  // namespace kindling
