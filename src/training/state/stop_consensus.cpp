#include "training/time_limit.h"

#include <array>
#include <charconv>

#include "kindling/base/error.h"

namespace kindling {

TimeLimit::TimeLimit(const std::string& text) {
  if (text.empty()) return;
  // Of a day: 24 hours; of those 60 minutes; of those 60 seconds.
  constexpr std::array<double, 4> kParts{1, 24, 60, 60};
  double seconds = 0;
  const char *at = text.data(), *const end = at + text.size();
  bool is_good = true;
  for (std::size_t i = 0; i < kParts.size() && is_good; ++i) {
    unsigned part = 0;
    const auto [after, error] = std::from_chars(at, end, part);
    const bool is_last = i + 1 == kParts.size();
    is_good = error == std::errc() && (is_last ? after == end : after != end && *after == ':') &&
              (i == 0 || part < kParts[i]);
    seconds = seconds * kParts[i] + part;
    at = is_last ? end : after + 1;
  }
  if (!is_good || seconds == 0)
    throw ConfigError({.place = "max_time",
                       .found = "'" + text + "'",
                       .wanted = "days:hours:minutes:seconds, more than nothing",
                       .remedy = "for half a day: \"00:12:00:00\""});
  limit_ = seconds;
}

void TimeLimit::start(double spent_s) {
  spent_before_ = spent_s;
  start_ = std::chrono::steady_clock::now();
}

double TimeLimit::spent_s() const {
  return spent_before_ + std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

}  // namespace kindling
