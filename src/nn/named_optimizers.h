#pragma once

#include <set>
#include <string>
#include <string_view>

#include "kindling/nn/manual_module.h"

namespace kindling {

// Returns a model's own optimizers, checked and with the names of its parameters. Throws ConfigError.
NamedOptimizers make_named_optimizers(Module& model);
// Returns the one of this name. Throws ConfigError that lists the known names.
Optimizer& optimizer_named(const NamedOptimizers& optimizers, std::string_view name);

// "'a', 'b'"
std::string list_of_names(const std::set<std::string>& names);
std::string list_of_names(const NamedOptimizers& optimizers);

}  // namespace kindling
