#pragma once

#include <string>
#include <vector>

#include "cli/check/fit_parts.h"

namespace kindling {

// Returns warnings for a new fit without errors: values that contradict each other or have no effect.
std::vector<std::string> warnings_of(const FitParts& fit);

}  // namespace kindling
