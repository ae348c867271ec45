#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/joined.h"
#include "kindling/base/error.h"

namespace kindling {

// Several errors in a config, each of which names its key. what() has a line for each.
class KINDLING_API ConfigErrors : public ConfigError {
 public:
  explicit ConfigErrors(std::vector<ErrorParts> errors)
      : ConfigError({.found = joined(errors, "\n",
                                     [](const auto& parts) { return std::string(Error(parts).what()); })}),
        errors_(std::move(errors)) {}

  const std::vector<ErrorParts>& errors() const noexcept { return errors_; }

 private:
  std::vector<ErrorParts> errors_;
};

}  // namespace kindling
