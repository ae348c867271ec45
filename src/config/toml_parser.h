#pragma once

#include "config/config_tree.h"

namespace kindling::config {

// The tree of a source's TOML text, every key and value with its place. The source must outlive the tree's
// places. Throws ConfigError with line and column for text that is no TOML, is too large or nested too deep.
ConfigTable parse_toml(const ConfigSource& source);

}  // namespace kindling::config
