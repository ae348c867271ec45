#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "kindling/optim/schedule.h"

namespace kindling {

// Linear from `start` to `end` over `total` steps, then `end`.
inline double linear_factor(double start, double end, std::int64_t step, std::int64_t total) {
  return start + (end - start) * static_cast<double>(std::min(step, total)) / static_cast<double>(total);
}

// Returns the option if set, otherwise the remaining length of the run. Throws ConfigError if that is
// unknown.
std::int64_t length_of(const std::optional<std::int64_t>& set, const SchedulePoint& at, const char* key);

// Throws ConfigError for a missing option that the schedule requires.
[[noreturn]] void refuse_missing(const char* schedule, const char* key, const char* wanted);

}  // namespace kindling
