#include "kindling/optim/cosine_schedules.h"

#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>

#include "kindling/base/error.h"
#include "optim/schedule_length.h"

namespace kindling {
namespace {

// From 1 down to 0 while `share` goes from 0 to 1.
double half_cosine(double share) { return (1 + std::cos(std::numbers::pi * share)) / 2; }

double share_of(std::int64_t step, std::int64_t length) {
  return static_cast<double>(step) / static_cast<double>(length);
}

// Returns the elapsed fraction of the period that contains `step`.
double share_of_period(std::int64_t step, std::int64_t first, std::int64_t factor) {
  if (factor == 1) return share_of(step % first, first);
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  std::int64_t length = first;
  while (step >= length) {
    step -= length;
    length = length > kMax / factor ? kMax : length * factor;  // longer than any run
  }
  return share_of(step, length);
}

// One of the three levels of a cycle, for the rate and for the momentum.
enum class Height { start, top, end };

struct Phase {
  double end_step;
  Height from, to;
};

// The phases and their ends as in OneCycleLR, including fractions.
class Cycle {
 public:
  Cycle(const OneCycleScheduleOptions& options, std::int64_t total_steps)
      : is_linear_(options.anneal_strategy == "linear") {
    const double up = options.pct_start * static_cast<double>(total_steps);
    const auto last = static_cast<double>(total_steps - 1);
    if (options.three_phase)
      phases_ = {{{up - 1, Height::start, Height::top},
                  {2 * up - 2, Height::top, Height::start},
                  {last, Height::start, Height::end}}};
    else
      phases_ = {{{up - 1, Height::start, Height::top}, {last, Height::top, Height::end}}};
    num_phases_ = options.three_phase ? 3 : 2;
  }

  double at(double step, const std::array<double, 3>& heights) const {
    double begin = 0;
    std::size_t i = 0;
    for (; i + 1 < num_phases_ && step > phases_[i].end_step; ++i) begin = phases_[i].end_step;
    const Phase& phase = phases_[i];
    const double from = heights[static_cast<std::size_t>(phase.from)];
    const double to = heights[static_cast<std::size_t>(phase.to)];
    const double length = phase.end_step - begin;
    const double share = length == 0 ? 1 : (step - begin) / length;
    return is_linear_ ? (to - from) * share + from : to + (from - to) * half_cosine(share);
  }

 private:
  bool is_linear_;
  std::array<Phase, 3> phases_{};
  std::size_t num_phases_;
};

Cycle cycle_at(const OneCycleScheduleOptions& options, const SchedulePoint& at) {
  const std::int64_t total = length_of(options.total_steps, at, "one_cycle schedule, total_steps");
  const std::int64_t wanted = std::max(at.total_steps, at.step + 1);
  if (wanted > total)
    throw ConfigError(
        {.place = "one_cycle schedule",
         .found = "total_steps is " + std::to_string(total) + ", but the run has " + std::to_string(wanted),
         .wanted = "a cycle of the run's length",
         .remedy = "omit total_steps: it defaults to the run's length"});
  return {options, total};
}

}  // namespace

Schedule cosine_schedule(CosineScheduleOptions options) {
  validate(options, "cosine schedule");
  return [options](const SchedulePoint& at) {
    const double share = share_of(at.step, length_of(options.T_max, at, "cosine schedule, T_max"));
    return options.eta_min + (at.base_lr - options.eta_min) * half_cosine(share);
  };
}

Schedule cosine_restarts_schedule(CosineRestartsScheduleOptions options) {
  validate(options, "cosine_restarts schedule");
  if (!options.T_0)
    refuse_missing("cosine_restarts schedule", "T_0", "the number of steps until the first restart");
  return [options](const SchedulePoint& at) {
    const double share = share_of_period(at.step, *options.T_0, options.T_mult);
    return options.eta_min + (at.base_lr - options.eta_min) * half_cosine(share);
  };
}

Schedule one_cycle_schedule(OneCycleScheduleOptions options) {
  validate(options, "one_cycle schedule");
  Schedule schedule = [options](const SchedulePoint& at) {
    const double top = options.max_lr.value_or(at.base_lr), start = top / options.div_factor;
    return cycle_at(options, at)
        .at(static_cast<double>(at.step), {start, top, start / options.final_div_factor});
  };
  if (!options.cycle_momentum.value_or(true)) return schedule;
  schedule.momentum = [options](const SchedulePoint& at) {
    const std::array heights{options.max_momentum, options.base_momentum, options.max_momentum};
    return cycle_at(options, at).at(static_cast<double>(at.step), heights);
  };
  schedule.needs_momentum = options.cycle_momentum.has_value();
  return schedule;
}

}  // namespace kindling
