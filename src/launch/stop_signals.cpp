#include "launch/stop_signals.h"

#include <unistd.h>

#include <cstdlib>

#include "kindling/base/error.h"
#include "kindling/launch/launch_environment.h"

namespace kindling {
namespace {

// Ctrl-C, unlike `kill -INT`.
bool is_from_terminal(const siginfo_t& signal) noexcept {
  return signal.si_signo == SIGINT && signal.si_code == SI_KERNEL;
}

bool has_launcher() try { return launch_environment().has_value(); } catch (const ConfigError&) {
  return true;
}

}  // namespace

void StopSignals::reset() {
  const char* parent = std::getenv(kParentVariable);
  parent_ = parent == nullptr ? 0 : static_cast<pid_t>(std::atol(parent));
  has_launcher_ = has_launcher();
  forget();
}

StopSignals::Meaning StopSignals::take(const siginfo_t& signal, std::int64_t now_ms) noexcept {
  const bool is_typed = is_from_terminal(signal);
  // The parent has got it from the terminal, too, and forwards it.
  if (is_typed && parent_ != 0 && ::getppid() == parent_) return Meaning::repetition;
  const bool is_from_parent = parent_ != 0 && signal.si_code == SI_USER && signal.si_pid == parent_;
  const bool is_parents_next = is_from_parent && parent_has_sent_.exchange(true);
  std::int64_t first_ms = kNone;
  if (first_ms_.compare_exchange_strong(first_ms, now_ms)) return Meaning::stop;
  if (is_parents_next || (is_typed && !has_launcher_)) return Meaning::end_now;
  return now_ms - first_ms <= kRepetition_ms ? Meaning::repetition : Meaning::end_now;
}

}  // namespace kindling
