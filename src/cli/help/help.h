#pragma once

#include <string>

#include "kindling/cli/registry.h"

namespace kindling {

// Explains a key of a config (trainer.precision, or precision), a table (optimizer), or a name that a config
// can use (adamw): types, defaults, ranges, examples, and the page of the reference. Throws ConfigError, with
// the nearest topic, if there is none.
std::string config_help(const Registry& registry, const std::string& topic);

// Return a script that completes commands, options, config keys, and their values for a program that calls
// run_program. `program` is the name that users type.
std::string bash_completion(const Registry& registry, const std::string& program);
std::string zsh_completion(const Registry& registry, const std::string& program);

}  // namespace kindling
