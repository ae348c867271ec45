#pragma once

#include <csignal>
#include <optional>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// The signals of a process that launches others: while this lives they end nothing, but can be waited for,
// also where this thread had blocked them. A SIGHUP that is ignored stays ignored. One at a time in a
// process.
class KINDLING_API ForwardedSignals {
 public:
  ForwardedSignals();  // throws Error if there is one already
  ~ForwardedSignals();
  ForwardedSignals(const ForwardedSignals&) = delete;
  ForwardedSignals& operator=(const ForwardedSignals&) = delete;

  // Those to be passed on that have come since the last call: SIGINT, SIGTERM, SIGHUP (without the
  // repetitions that StopSignals finds) and SIGUSR1. Returns at once when there are some or a child has
  // ended, else after `timeout_ms`; -1: waits as long as it takes.
  std::vector<int> wait(int timeout_ms);

  // In a child between fork and exec: restores the default handling of all signals, and drops those that have
  // arrived.
  void forget_in_child() const noexcept;

 private:
  struct Former {
    int signal;
    struct sigaction action;
  };
  std::vector<Former> former_{};
  sigset_t former_mask_{};
  int read_end_ = -1;
};

// Blocks all signals of this thread for its lifetime.
class BlockedSignals {
 public:
  BlockedSignals() noexcept;
  ~BlockedSignals() { restore(); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  void restore() const noexcept { ::pthread_sigmask(SIG_SETMASK, &former_, nullptr); }

 private:
  sigset_t former_;
};

}  // namespace kindling
