#pragma once

#include <ATen/record_function.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>

namespace kindling {

// The host's activities during an epoch. The host only starts a GPU's computations; the wait for them at the
// end of the epoch is part of the log.
enum class Activity { data, forward, backward, update, log, validation, other };
inline constexpr std::array<const char*, 7> kActivityNames{"data", "forward",    "backward", "update",
                                                           "log",  "validation", "other"};

// Measures how the host spends its time. It never restarts, so that several readers can use one clock, each
// with its own start. While it is stopped, it measures nothing and costs nothing.
class EpochClock {
 public:
  using Clock = std::chrono::steady_clock;
  using Times = std::array<Clock::duration, kActivityNames.size()>;

  explicit EpochClock(bool is_running = true) : is_running_(is_running) {}

  void start() { is_running_ = true; }
  bool is_running() const noexcept { return is_running_; }
  // Begins an activity and returns the one that it replaces.
  Activity turn_to(Activity next);
  // Returns the time that each activity has taken so far, including the running one.
  Times spent();
  // Adds to the time in which gradients are exchanged with other ranks. Counts while the clock is stopped,
  // too.
  void add_exchange(Clock::duration time) { exchange_ += time; }
  Clock::duration exchange() const noexcept { return exchange_; }
  // Returns the fraction of each activity in the time since spent() returned `start`.
  std::array<double, kActivityNames.size()> fractions_since(const Times& start);

 private:
  bool is_running_;
  Activity current_ = Activity::other;
  Clock::time_point since_ = Clock::now();
  Times spent_{};
  Clock::duration exchange_{};
};

// Times one activity and pauses the enclosing one; traces show it. Does nothing without a clock or while it
// is stopped.
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
