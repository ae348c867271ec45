#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kindling/launch/launch_environment.h"

namespace kindling {

// Reads environment variables; what cannot be used is a ConfigError.
class VariableReader {
 public:
  explicit VariableReader(const Variables& variables) : variables_(variables) {}

  bool has(const char* name) const { return text(name).has_value(); }
  std::optional<std::string> text(const char* name) const;
  // `because` is added to what is wanted: ", because WORLD_SIZE is 4".
  std::optional<std::int64_t> integer(const char* name, std::int64_t min, std::int64_t max,
                                      const std::string& because = "") const;

 private:
  const Variables& variables_;
};

// What is wrong with a variable, a clause, what was wanted, and what to do; without a remedy the general one.
[[noreturn]] void refuse_variable(const std::string& name, const std::string& found,
                                  const std::string& wanted, const std::string& remedy = "");

}  // namespace kindling
