#pragma once

#include "kindling/training/stop_token.h"

namespace kindling {

// While it lives, SIGINT and SIGTERM ask for a stop; a second one ends the process at once. One at a time.
class StopOnSignal {
 public:
  explicit StopOnSignal(StopToken token);
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

  // The signal that came, 0 for none.
  int signal() const noexcept;
  // Of a program that ends because of it, as shells count; 0 without one.
  int exit_code() const noexcept { return signal() == 0 ? 0 : 128 + signal(); }
};

}  // namespace kindling
