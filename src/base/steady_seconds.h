#pragma once

#include <time.h>

#include <chrono>

namespace kindling {

inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Returns the same clock's time as of its last tick, a few milliseconds ago at most. Takes a sixth of the
// time of steady_seconds(), for checks in every step.
inline double coarse_steady_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace kindling
