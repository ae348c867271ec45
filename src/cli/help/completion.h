#pragma once

#include <string>

#include "kindling/cli/registry.h"

namespace kindling {

// Return a script that completes commands, options, config keys, and their values for a program that calls
// run_program. `program` is the name that users type.
std::string bash_completion(const Registry& registry, const std::string& program);
std::string zsh_completion(const Registry& registry, const std::string& program);

}  // namespace kindling
