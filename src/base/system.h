#pragma once

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <string>

// What the operating system knows: the time, this machine's name, the signals of this process.
namespace kindling {

inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Returns the same clock's milliseconds; async-signal-safe.
inline std::int64_t steady_ms() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{1000} * now.tv_sec + now.tv_nsec / 1'000'000;
}

// Returns the same clock's time as of its last tick, a few milliseconds ago at most. Takes a sixth of the
// time of steady_seconds(), for checks in every step.
inline double coarse_steady_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Returns an empty text if the machine has no name.
inline std::string host_name() {
  char name[256] = {};  // POSIX allows 255
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

// True for a signal that this process was started to ignore, as nohup does with SIGHUP.
inline bool is_ignored(int signal) {
  struct sigaction action {};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

}  // namespace kindling
