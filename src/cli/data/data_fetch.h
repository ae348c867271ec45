#pragma once

#include <string>

#include "cli/config/run_config.h"

namespace kindling {

// Prints the files of the config's data set, what is wrong with those on this machine, and the commands that
// download the others. Returns the exit code: 0 if all files are right, else that of a DataError. Throws
// ConfigError for data without known files.
int fetch_data(const RunConfig& config, bool as_json);

// Throws ConfigError with the names of the data sets whose files are known.
[[noreturn]] void refuse_fetch(const std::string& name);

}  // namespace kindling
