#pragma once

#include <exception>
#include <string>

#include "kindling/base/log.h"

namespace kindling {

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
