#pragma once

#include "config/config_tree.h"
#include "kindling/base/export.h"

namespace kindling::config {

// Returns the tree of a source's TOML text, with the place of every key and value. The source must outlive
// the tree's places. Throws ConfigError with line and column for text that is not TOML, is too large or
// nested too deeply.
KINDLING_API ConfigTable parse_toml(const ConfigSource& source);

}  // namespace kindling::config
