#pragma once

#include <sys/types.h>

#include <atomic>
#include <csignal>
#include <cstdint>

#include "kindling/base/export.h"

namespace kindling {

// Set in the environment of each process that this one starts: its own process number.
inline constexpr const char* kParentVariable = "KINDLING_PARENT";

// Tells a request to stop from its repetitions. Clusters and launchers send one request several times: SLURM
// signals TERM, CONT, TERM at a time limit; systemd and scancel signal a launcher and its ranks, and the
// launcher forwards. One for the handlers of a process.
class KINDLING_API StopSignals {
 public:
  enum class Meaning { stop, repetition, end_now };
  // A stop signal so soon after the first one repeats it.
  static constexpr std::int64_t kRepetition_ms = 3000;

  // Begins without a signal, as the process that its environment describes; before a handler is installed.
  void reset();
  // Begins without a signal, as the same process; at any time.
  void forget() noexcept {
    first_ms_ = kNone;
    parent_has_sent_ = false;
  }
  // Async-signal-safe. `now_ms`: of a clock that never goes back.
  Meaning take(const siginfo_t& signal, std::int64_t now_ms) noexcept;

 private:
  pid_t parent_ = 0;           // a process of Kindling that forwards each request once; 0: none
  bool has_launcher_ = false;  // of another kind, which may forward what a terminal sends
  std::atomic<std::int64_t> first_ms_ = kNone;
  std::atomic<bool> parent_has_sent_ = false;
  static constexpr std::int64_t kNone = -1;
  static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);
};

}  // namespace kindling
