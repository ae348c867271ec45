#pragma once

#include <thread>

#include "cli/run/fit_processes.h"
#include "cli/run/stop_on_signal.h"

namespace kindling {

// Sends this process SIGTERM, which saves and ends the fit, if torchrun ends before its ranks: SIGUSR1 and
// SIGKILL end torchrun and leave them running, and nobody would restart or stop them. Does nothing under
// other launchers, whose ranks may outlive them on purpose.
class LauncherWatch {
 public:
  LauncherWatch(const LaunchPlace& place, const StopOnSignal& signals);
  ~LauncherWatch();
  LauncherWatch(const LauncherWatch&) = delete;
  LauncherWatch& operator=(const LauncherWatch&) = delete;

 private:
  int launcher_ = -1, end_ = -1;  // file descriptors of its process and of an event
  std::thread thread_;
};

}  // namespace kindling
