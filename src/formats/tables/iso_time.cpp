#include "formats/tables/iso_time.h"

#include <chrono>
#include <cstddef>
#include <string>

#include "formats/tables/csv_number.h"

namespace kindling {
namespace {

// Takes the parts of a text from its front.
class TimeReader {
 public:
  explicit TimeReader(std::string_view text) : rest_(text) {}

  bool is_done() const { return rest_.empty(); }
  bool take(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  // Returns a number of exactly so many digits up to `most`; -1: there is none.
  int take_number(std::size_t num_digits, int most) {
    if (rest_.size() < num_digits) return -1;
    int number = 0;
    for (const char c : rest_.substr(0, num_digits)) {
      if (c < '0' || c > '9') return -1;
      number = 10 * number + (c - '0');
    }
    if (number > most) return -1;
    rest_.remove_prefix(num_digits);
    return number;
  }
  // Returns a fraction of a second after its point.
  double take_fraction() {
    const std::size_t end = rest_.find_first_not_of("0123456789");
    const std::string digits = "0." + std::string(rest_.substr(0, end));
    rest_.remove_prefix(digits.size() - 2);
    return csv_number(digits).value_or(0);
  }

 private:
  std::string_view rest_;
};

// Returns the days since 1970.
std::optional<int> take_date(TimeReader& reader) {
  const int year = reader.take_number(4, 9999);
  const char separator = reader.take('/') ? '/' : '-';
  if (year < 0 || (separator == '-' && !reader.take('-'))) return std::nullopt;
  const int month = reader.take_number(2, 12);
  if (month < 1 || !reader.take(separator)) return std::nullopt;
  const int day = reader.take_number(2, 31);
  if (day < 1) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return std::nullopt;
  return static_cast<int>(std::chrono::sys_days(date).time_since_epoch().count());
}

// Returns seconds, and sets the hour.
std::optional<double> take_clock(TimeReader& reader, int& hour) {
  hour = reader.take_number(2, 23);
  if (hour < 0 || !reader.take(':')) return std::nullopt;
  const int minute = reader.take_number(2, 59);
  if (minute < 0) return std::nullopt;
  double seconds = 60.0 * (60 * hour + minute);
  if (!reader.take(':')) return seconds;
  const int second = reader.take_number(2, 60);
  if (second < 0) return std::nullopt;
  seconds += second;
  if (reader.take('.')) seconds += reader.take_fraction();
  return seconds;
}

// Returns the seconds by which the zone is ahead of UTC.
std::optional<double> take_zone(TimeReader& reader) {
  if (reader.is_done() || reader.take('Z')) return 0;
  const double sign = reader.take('-') ? -1 : 1;
  if (sign > 0 && !reader.take('+')) return std::nullopt;
  const int hours = reader.take_number(2, 23);
  if (hours < 0) return std::nullopt;
  reader.take(':');
  const int minutes = reader.is_done() ? 0 : reader.take_number(2, 59);
  if (minutes < 0) return std::nullopt;
  return sign * 60 * (60 * hours + minutes);
}

}  // namespace

std::optional<IsoTime> iso_time(std::string_view text) {
  constexpr double kSecondsPerDay = 86400;
  TimeReader reader(text);
  const std::optional<int> day = take_date(reader);
  if (!day) return std::nullopt;
  IsoTime time{.seconds = *day * kSecondsPerDay, .day = *day};
  if (reader.is_done()) return time;
  if (!reader.take('T') && !reader.take(' ')) return std::nullopt;
  const std::optional<double> clock = take_clock(reader, time.hour);
  if (!clock) return std::nullopt;
  const std::optional<double> zone = take_zone(reader);
  if (!zone || !reader.is_done()) return std::nullopt;
  time.seconds += *clock - *zone;
  return time;
}

}  // namespace kindling
