#pragma once

#include <vector>

#include "protocol.h"

namespace kindling_bench {

double wall_seconds();        // of a steady clock
double cpu_seconds();         // of this process, all its threads
double thread_cpu_seconds();  // of the thread that calls

// Times the intervals between calls of tick(). The first is a warm-up and not counted. With a gate, every
// counted interval starts only after the line "ready" has been answered, so that the driver can alternate
// between programs.
class Clock {
 public:
  explicit Clock(const Options& options) : repeats_(options.repeats), gate_(options.gate) {}

  int rounds() const noexcept { return kWarmup + repeats_; }
  void tick();
  void stop();  // ends the current interval; time until the next tick() does not count

  // Seconds of the counted intervals.
  std::vector<double> wall() const { return {wall_.begin() + kWarmup, wall_.end()}; }
  std::vector<double> cpu() const { return {cpu_.begin() + kWarmup, cpu_.end()}; }
  // Of the thread that ticks.
  std::vector<double> thread_cpu() const { return {thread_cpu_.begin() + kWarmup, thread_cpu_.end()}; }

 private:
  static constexpr int kWarmup = 1;

  int repeats_;
  bool gate_;
  bool started_ = false;
  double wall_start_ = 0, cpu_start_ = 0, thread_cpu_start_ = 0;
  std::vector<double> wall_, cpu_, thread_cpu_;
};

}  // namespace kindling_bench
