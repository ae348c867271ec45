#pragma once

#include <optional>
#include <string_view>

namespace kindling {

struct IsoTime {
  double seconds = 0;  // since 1970 in UTC
  int day = 0;         // of the local time, days since 1970
  int hour = 0;        // of the local time
};

// Returns the time of a date or time in the format of ISO 8601, such as 2026-11-29,
// 2026-11-29 15:30, 2026-11-29T15:30:00.25Z or 2026-11-29T15:30:00+02:00; '/' may stand for '-' in dates.
// Without a zone it counts as UTC. Nothing for another text, and for a day that does not exist.
std::optional<IsoTime> iso_time(std::string_view text);

}  // namespace kindling
