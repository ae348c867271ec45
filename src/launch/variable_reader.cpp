#include "launch/variable_reader.h"

#include <charconv>
#include <system_error>

#include "kindling/base/error.h"
#include "kindling/base/text.h"

namespace kindling {

void refuse_variable(const std::string& name, const std::string& found, const std::string& wanted,
                     const std::string& remedy) {
  throw ConfigError(
      {.place = "environment variable " + name,
       .found = found,
       .wanted = wanted,
       .remedy = remedy.empty() ? "start all processes with one launcher (torchrun, srun, mpirun), or unset "
                                  "its variables to train with one process"
                                : remedy});
}

std::optional<std::string> VariableReader::text(const char* name) const {
  const char* const value = variables_(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<std::int64_t> VariableReader::integer(const char* name, std::int64_t min, std::int64_t max,
                                                    const std::string& because) const {
  const auto value = text(name);
  if (!value) return std::nullopt;
  const char* const end = value->data() + value->size();
  std::int64_t number = 0;
  const auto [stop, code] = std::from_chars(value->data(), end, number);
  if (code != std::errc() || stop != end || number < min || number > max)
    refuse_variable(name, "it is \"" + shortened(one_line(*value), 40) + "\"",
                    "a whole number from " + std::to_string(min) + " to " + std::to_string(max) + because);
  return number;
}

}  // namespace kindling
