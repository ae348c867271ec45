#pragma once

#include "cli/config/command_line.h"
#include "cli/config/run_config.h"

namespace kindling {

// Prints the first training samples of the config's data. Returns the exit code.
int show_data(const RunConfig& config, const Request& request);

}  // namespace kindling
