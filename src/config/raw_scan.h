#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace kindling::config {

struct RawFinding {
  std::size_t offset;
  const char* text;
};

// What must be known about raw bytes before a parser sees them. Both give the first finding.

// Bytes that TOML forbids anywhere: broken UTF-8, a control character but tab and line end.
std::optional<RawFinding> find_forbidden_byte(std::string_view text);

// Tables, arrays, inline tables and dotted keys that nest deeper than `max_depth` around a value (brackets
// and dots in strings and comments do not count), and what toml++ 3.3 answers with undefined behaviour
// instead of an error. For text without forbidden bytes.
std::optional<RawFinding> find_unparsable(std::string_view text, std::size_t max_depth);

}  // namespace kindling::config
