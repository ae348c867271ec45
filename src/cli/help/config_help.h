#pragma once

#include <string>

#include "kindling/cli/registry.h"

namespace kindling {

// Explains a key of a config (trainer.precision, or precision), a table (optimizer), or a name that a config
// can use (adamw): types, defaults, ranges, examples, and the page of the reference. Throws ConfigError, with
// the nearest topic, if there is none.
std::string config_help(const Registry& registry, const std::string& topic);

}  // namespace kindling
