#pragma once

#include <string>

namespace kindling {

// Returns a value of RunConfig::values() as people write it outside of TOML: mlp for "mlp".
inline std::string unquoted(const std::string& value) {
  const bool is_quoted = value.size() >= 2 && value.front() == '"' && value.back() == '"';
  return is_quoted ? value.substr(1, value.size() - 2) : value;
}

}  // namespace kindling
