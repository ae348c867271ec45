#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "kindling/base/export.h"

// The app log: Kindling's messages while it runs. Silent until configure_log or set_log_observer is called,
// so that nothing appears on a host program's terminal. All functions may be called from any thread.
namespace kindling {

// By severity; as a threshold, off drops all messages.
enum class LogLevel { debug, info, warning, error, off };

// Where messages go.
struct LogOptions {
  LogLevel level = LogLevel::info;          // messages below it are dropped; off: silent
  bool to_stderr = false;                   // lines such as "warning: text"
  LogLevel stderr_level = LogLevel::debug;  // the same for stderr only
  bool color = false;                       // colours the level in stderr lines
  std::filesystem::path file = {};          // appended to, with timestamps; empty: no file
  bool follow_links = true;                 // false: refuses a file that is a symbolic link
};

// Replaces the whole configuration except the observer. Throws Error if the file cannot be opened; the
// previous configuration then stays.
KINDLING_API void configure_log(const LogOptions& options);

// Called with every message of the configured level and above, on the thread that logs, in addition to stderr
// and file; empty: none. It may log itself. Its exceptions reach the caller of log().
using LogObserver = std::function<void(LogLevel, const std::string&)>;
KINDLING_API void set_log_observer(LogObserver observer);

// Logs a message at a level. Does nothing while the log is silent.
KINDLING_API void log(LogLevel level, std::string_view message);
inline void log_info(std::string_view message) { log(LogLevel::info, message); }
inline void log_warning(std::string_view message) { log(LogLevel::warning, message); }
inline void log_error(std::string_view message) { log(LogLevel::error, message); }

}  // namespace kindling
