#pragma once

#include <c10/core/AutogradState.h>

namespace kindling {

// While it exists, backward passes of this thread run on this thread, including those of devices.
class BackwardOnThisThread {
 public:
  BackwardOnThisThread() : former_(state().get_multithreading_enabled()) {
    state().set_multithreading_enabled(false);
  }
  ~BackwardOnThisThread() { state().set_multithreading_enabled(former_); }
  BackwardOnThisThread(const BackwardOnThisThread&) = delete;
  BackwardOnThisThread& operator=(const BackwardOnThisThread&) = delete;

 private:
  static c10::AutogradState& state() { return c10::AutogradState::get_tls_state(); }

  bool former_;
};

}  // namespace kindling
