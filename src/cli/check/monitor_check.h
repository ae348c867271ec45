#pragma once

#include <string>
#include <vector>

#include "cli/check/fit_findings.h"
#include "cli/check/fit_parts.h"

namespace kindling {

// Adds findings for monitored values that the run does not log. Returns warnings for those that a callback of
// the user would have to log.
std::vector<std::string> check_monitors(const FitParts& fit, FitFindings& findings);

}  // namespace kindling
