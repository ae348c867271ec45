#pragma once

#include <optional>
#include <string>

#include "config/config_tree.h"
#include "config/findings.h"
#include "kindling/config/options.h"

namespace kindling::config {

// "the string \"1e-3\"", "an array of 3 values"
std::string found_text(const ConfigNode& node);

// The string of a value; of an override also the text of a number or a date: quotes are a burden in a shell.
std::optional<std::string> as_string(const ConfigNode& node);

// Moves a value into an option. When it is of another type or not allowed: leaves the option as it is and
// returns what is wrong. `path` is what messages call the option.
std::optional<Finding> read_value(const ConfigNode& node, const std::string& path, const OptionRef& option);

}  // namespace kindling::config
