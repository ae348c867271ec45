#pragma once

#include <ATen/record_function.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>

namespace kindling {

// What the host spends an epoch's time on. On a card it only starts what the card computes: what it waits for
// at the epoch's end is part of the log.
enum class Activity { data, forward, backward, update, log, validation, other };
inline constexpr std::array<const char*, 7> kActivityNames{"data", "forward",    "backward", "update",
                                                           "log",  "validation", "other"};

// Where the time of an epoch goes. Something is always going on: the parts add up to the whole.
class EpochClock {
 public:
  void restart() { *this = EpochClock(); }
  // What goes on from now on; gives what went on before.
  Activity turn_to(Activity next);
  // Of the time since the restart, one for each Activity.
  std::array<double, kActivityNames.size()> shares();

 private:
  using Clock = std::chrono::steady_clock;

  Activity current_ = Activity::other;
  Clock::time_point since_ = Clock::now();
  std::array<Clock::duration, kActivityNames.size()> spent_{};
};

// While it lives, this goes on; what went on before is held up. A trace shows it. nullptr: nobody looks.
class ActivityScope {
 public:
  ActivityScope(EpochClock* clock, Activity activity);
  ~ActivityScope() {
    if (clock_ != nullptr) clock_->turn_to(former_);
  }
  ActivityScope(const ActivityScope&) = delete;
  ActivityScope& operator=(const ActivityScope&) = delete;

 private:
  EpochClock* clock_;
  Activity former_ = Activity::other;
  std::optional<at::RecordFunction> in_trace_{};
};

}  // namespace kindling
