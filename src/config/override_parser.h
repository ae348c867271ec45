#pragma once

#include <string>

#include "config/config_tree.h"

namespace kindling::config {

// The tree of one override, "trainer.max_epochs=3". The source, which is named after it, must outlive the
// tree's places. Throws ConfigError.
ConfigTable parse_override(const std::string& assignment, const ConfigSource& source);

}  // namespace kindling::config
