#pragma once

#include <memory>
#include <string>

#include "kindling/program/registry.h"
#include "program/command_line.h"
#include "program/run_config.h"

namespace kindling {

struct LoadedConfig {
  std::unique_ptr<RunConfig> config;
  std::string description;  // "digits.toml + 1 override"
  bool only_asked = false;  // --check or --print-config: it has been answered, nothing is to be run
};

// Merges the files and overrides of a command and resolves them. Throws ConfigError.
LoadedConfig load_config(const Request& request, const Registry& registry);

}  // namespace kindling
