#include "kindling/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kindling/base/error.h"

namespace kindling {
namespace {

double linear_factor(double start, double end, std::int64_t step, std::int64_t total) {
  return start + (end - start) * static_cast<double>(std::min(step, total)) / static_cast<double>(total);
}

// What is set, else what the run has left.
std::int64_t length_of(const std::optional<std::int64_t>& set, const SchedulePoint& at, const char* key) {
  if (set) return *set;
  if (at.total_steps > 0) return at.total_steps;
  throw ConfigError({.place = key,
                     .found = "it is not set, and the length of the run is not known",
                     .wanted = "a number of steps",
                     .remedy = "in a loop of your own the schedule needs it"});
}

}  // namespace

Schedule constant_schedule(ConstantScheduleOptions options) {
  validate(options, "constant schedule");
  return [options](const SchedulePoint& at) {
    return at.step < options.total_iters ? at.base_lr * options.factor : at.base_lr;
  };
}

Schedule step_schedule(StepScheduleOptions options) {
  validate(options, "step schedule");
  return [options](const SchedulePoint& at) {
    return at.base_lr * std::pow(options.gamma, static_cast<double>(at.step / options.step_size));
  };
}

Schedule linear_schedule(LinearScheduleOptions options) {
  validate(options, "linear schedule");
  return [options](const SchedulePoint& at) {
    const std::int64_t total = length_of(options.total_iters, at, "linear schedule, total_iters");
    return at.base_lr * linear_factor(options.start_factor, options.end_factor, at.step, total);
  };
}

Schedule cosine_schedule(CosineScheduleOptions options) {
  validate(options, "cosine schedule");
  return [options](const SchedulePoint& at) {
    const double t = static_cast<double>(at.step) /
                     static_cast<double>(length_of(options.T_max, at, "cosine schedule, T_max"));
    return options.eta_min + (at.base_lr - options.eta_min) * (1 + std::cos(std::numbers::pi * t)) / 2;
  };
}

Schedule with_warmup(Schedule after, WarmupOptions options) {
  validate(options, "warm-up");
  if (options.warmup_steps == 0) return after;
  return [after = std::move(after), options](SchedulePoint at) {
    const std::int64_t steps = options.warmup_steps;
    if (at.step < steps) return at.base_lr * linear_factor(options.warmup_start_factor, 1, at.step, steps);
    at.step -= steps;
    at.total_steps = std::max<std::int64_t>(at.total_steps - steps, 0);
    return after(at);
  };
}

}  // namespace kindling
