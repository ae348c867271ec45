#pragma once

#include "cli/config/command_line.h"
#include "kindling/cli/registry.h"

namespace kindling {

// Sorts the words of a command line that are given without an option into configs, tables, directories of
// images and runs: fit, data and bench step take config files, data also the name of a data set; a run is
// evaluated by its name, a config file as with -c. All of them take a table or a directory of images instead
// of a config, which become overrides. Throws ConfigError for several of these, and for another directory.
void move_config_words(Request& request, const Registry& registry);

}  // namespace kindling
