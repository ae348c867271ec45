#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "kindling/launch/launch_environment.h"

namespace kindling {

inline constexpr std::int64_t kMaxRanks = std::numeric_limits<std::int32_t>::max();  // c10d counts by int

// Throws ConfigError that says what is wrong with a variable, what was expected, and what to do: a general
// hint by default.
[[noreturn]] void refuse_variable(const std::string& name, const std::string& found,
                                  const std::string& wanted, const std::string& remedy = "");

// Reads environment variables; throws ConfigError for invalid ones. An empty value counts as unset.
class VariableReader {
 public:
  explicit VariableReader(const Variables& variables) : variables_(variables) {}

  bool has(const char* name) const { return text(name).has_value(); }
  std::optional<std::string> text(const char* name) const;
  // `because` is appended to the expected value: ", because WORLD_SIZE is 4".
  std::optional<std::int64_t> integer(const char* name, std::int64_t min, std::int64_t max,
                                      const std::string& because = "") const;

 private:
  const Variables& variables_;
};

}  // namespace kindling
