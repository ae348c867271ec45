#pragma once

#include <memory>
#include <string>

#include "cli/config/command_line.h"
#include "cli/config/run_config.h"
#include "kindling/cli/registry.h"

namespace kindling {

struct LoadedConfig {
  std::unique_ptr<RunConfig> config;
  std::string description;  // "digits.toml + 1 override"
  bool is_query = false;    // --check or --print-config: already answered, nothing to run
};

// Merges the files and overrides of a command and resolves them. Throws ConfigError.
LoadedConfig load_config(const Request& request, const Registry& registry, ConfigUse use = ConfigUse::fit);

}  // namespace kindling
