#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "kindling/base/export.h"

// The app log: what Kindling has to say while it works. Silent until configure_log or set_log_observer is
// called, so that a host program's terminal stays its own. All functions may be called from any thread.
namespace kindling {

// In order of weight; as a threshold, off lets nothing through.
enum class LogLevel { debug, info, warning, error, off };

// Where messages go.
struct LogOptions {
  LogLevel level = LogLevel::info;          // messages below it are dropped; off: silent
  bool to_stderr = false;                   // lines such as "warning: text"
  LogLevel stderr_level = LogLevel::debug;  // of those, messages below it stay out of stderr
  bool color = false;                       // colours the level of the stderr lines
  std::filesystem::path file = {};          // appended to, with timestamps; empty: no file
};

// Replaces the whole configuration, the observer excepted. Throws Error when the file cannot be opened; the
// former configuration then stays.
KINDLING_API void configure_log(const LogOptions& options);

// Called with every message of the configured level and above, on the thread that logs, besides stderr and
// file; empty: none. It may log itself. What it throws reaches the caller of log().
using LogObserver = std::function<void(LogLevel, const std::string&)>;
KINDLING_API void set_log_observer(LogObserver observer);

// Says something on a level; to nobody as long as the log is silent.
KINDLING_API void log(LogLevel level, std::string_view message);
inline void log_info(std::string_view message) { log(LogLevel::info, message); }
inline void log_warning(std::string_view message) { log(LogLevel::warning, message); }
inline void log_error(std::string_view message) { log(LogLevel::error, message); }

}  // namespace kindling
