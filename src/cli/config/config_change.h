#pragma once

#include <string>
#include <vector>

#include "cli/config/run_config.h"

namespace kindling {

// A key whose value differs between two configs; "not set" if it has none.
struct ConfigChange {
  std::string key, was, now;
};

// Returns the changes sorted by key, without the keys that select where a run starts.
std::vector<ConfigChange> changes_between(const RunConfig& was, const RunConfig& now);

}  // namespace kindling
