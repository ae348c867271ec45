#pragma once

#include "cli/config/run_config.h"

namespace kindling {

// Prints the files of the config's data set, what is wrong with those on this machine, and the commands that
// download the others. Returns the exit code: 0 if all files are right, else that of a DataError. Throws
// ConfigError for data without known files.
int fetch_data(const RunConfig& config, bool as_json);

}  // namespace kindling
