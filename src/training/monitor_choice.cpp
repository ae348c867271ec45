#include "training/monitor_choice.h"

#include "kindling/base/error.h"

namespace kindling {

Module::Monitor choose_monitor(const std::string& monitor, const std::string& mode, const Module& model,
                               const char* place) {
  Module::Monitor chosen = model.monitor();
  if (!monitor.empty() && monitor != chosen.name) {
    if (mode.empty())
      throw ConfigError({.place = place,
                         .found = "monitor is '" + monitor + "', and mode is not set",
                         .wanted = "what is better",
                         .remedy = "mode = \"min\" or \"max\""});
    chosen.name = monitor;
  }
  if (!mode.empty()) chosen.higher_is_better = mode == "max";
  return chosen;
}

}  // namespace kindling
