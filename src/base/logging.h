#pragma once

#include <atomic>
#include <exception>
#include <string>

#include "kindling/base/log.h"

namespace kindling {

// True while a progress line is on stderr, with the cursor at its start. A log message erases the line first.
inline std::atomic<bool> has_stderr_line = false;

// Erases a progress line from the cursor on: below it too, where a narrower terminal has wrapped the line.
inline constexpr const char* kEraseLine = "\x1b[J";

// Calls `call` and logs what it throws: for destructors, which would otherwise end the process where a device
// has failed and the copies that restore a state fail as well.
template <class Call>
void log_errors(const char* what, const Call& call) noexcept {
  try {
    try {
      call();
    } catch (const std::exception& error) {
      log_error(std::string(what) + ": " + error.what());
    } catch (...) {
      log_error(what);
    }
  } catch (...) {  // of an observer of the log
  }
}

}  // namespace kindling
