#pragma once

#include <string>
#include <vector>

#include "cli/config/run_config.h"

namespace kindling {

// A key whose value is another one in another config; "not set" for none.
struct ConfigChange {
  std::string key, was, now;
};

// By their keys; those that say where a training begins are left out.
std::vector<ConfigChange> changes_between(const RunConfig& was, const RunConfig& now);

}  // namespace kindling
