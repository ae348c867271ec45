#include "nn/monitored_value.h"

#include "kindling/base/error.h"
#include "kindling/base/suggest.h"

namespace kindling {

Module::Monitor monitor_of(const std::string& monitor, const std::string& mode, const Module& model,
                           const std::string& place) {
  Module::Monitor chosen = model.monitor();
  if (!monitor.empty() && monitor != chosen.name) {
    // The value of a further validation set, such as val_loss/NAME, is of the same kind.
    if (mode.empty() && !monitor.starts_with(chosen.name + "/"))
      throw ConfigError({.place = place,
                         .found = "monitor is '" + monitor + "', but mode is not set",
                         .wanted = "whether lower or higher values are better",
                         .remedy = "set mode to \"min\" or \"max\""});
    chosen.name = monitor;
  }
  if (!mode.empty()) chosen.higher_is_better = mode == "max";
  return chosen;
}

double value_of(const Record& record, const std::string& name, const std::string& place) {
  if (const double* value = record.find(name)) return *value;
  std::vector<std::string> names;
  for (const auto& [known, value] : record.values) names.push_back(known);
  const std::string guess = nearest(name, names);
  throw ConfigError(
      {.place = place,
       .found = "the record of epoch " + std::to_string(record.epoch) + " has no '" + name + "'",
       .wanted = "one of " + list_names(names),
       .remedy = guess.empty() ? "" : "did you mean '" + guess + "'?"});
}

}  // namespace kindling
