#pragma once

#include <map>
#include <string>

namespace kindling {

// Environment variables and their values.
using VariableMap = std::map<std::string, std::string>;

// Returns the variables of both, with the values of `b` where both have one.
inline VariableMap operator+(VariableMap a, const VariableMap& b) {
  for (const auto& [name, value] : b) a[name] = value;
  return a;
}

}  // namespace kindling
