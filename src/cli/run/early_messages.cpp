#include "cli/run/early_messages.h"

namespace kindling {

EarlyMessages::EarlyMessages(LogLevel stderr_level) {
  configure_log({.level = LogLevel::info, .to_stderr = true, .stderr_level = stderr_level, .file = {}});
  set_log_observer([this](LogLevel level, const std::string& text) {
    const std::lock_guard lock(mutex_);
    kept_.emplace_back(level, text);
  });
}

EarlyMessages::~EarlyMessages() { set_log_observer({}); }

void EarlyMessages::open(const LogOptions& options) {
  set_log_observer({});
  LogOptions file_only = options;
  file_only.to_stderr = false;
  configure_log(file_only);
  const std::lock_guard lock(mutex_);
  for (const auto& [level, text] : std::exchange(kept_, {})) log(level, text);
  configure_log(options);
}

}  // namespace kindling
