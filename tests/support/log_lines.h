#pragma once

#include <string>
#include <vector>

#include "kindling/base/log.h"

namespace kindling {

// The messages that are logged while it exists, of the given level and above. Afterwards the level is that of
// warnings, for tests that only set an observer.
class LogLines {
 public:
  explicit LogLines(LogLevel level = LogLevel::warning) {
    configure_log({.level = level});
    set_log_observer([this](LogLevel, const std::string& message) { texts.push_back(message); });
  }
  ~LogLines() {
    set_log_observer({});
    configure_log({.level = LogLevel::warning});
  }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;

  std::vector<std::string> texts;
};

}  // namespace kindling
