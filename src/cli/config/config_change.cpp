#include "cli/config/config_change.h"

#include <map>

namespace kindling {

std::vector<ConfigChange> changes_between(const RunConfig& was, const RunConfig& now) {
  std::map<std::string, ConfigChange> changes;
  for (const auto& [key, value] : was.values()) changes[key] = {key, value, "not set"};
  for (const auto& [key, value] : now.values())
    changes.try_emplace(key, ConfigChange{key, "not set", ""}).first->second.now = value;
  changes.erase("checkpoint.resume");  // concerns this start, not the run
  std::vector<ConfigChange> differing;
  for (const auto& [key, change] : changes)
    if (change.was != change.now) differing.push_back(change);
  return differing;
}

}  // namespace kindling
