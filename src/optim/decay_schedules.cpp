#include "kindling/optim/decay_schedules.h"

#include <algorithm>
#include <cmath>

#include "optim/schedule_length.h"

namespace kindling {

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

Schedule multistep_schedule(MultistepScheduleOptions options) {
  validate(options, "multistep schedule");
  if (options.milestones.empty()) refuse_missing("multistep schedule", "milestones", "at least one step");
  return [options](const SchedulePoint& at) {
    const auto is_behind = [&](std::int64_t milestone) { return milestone <= at.step; };
    return at.base_lr *
           std::pow(options.gamma, static_cast<double>(std::ranges::count_if(options.milestones, is_behind)));
  };
}

Schedule exponential_schedule(ExponentialScheduleOptions options) {
  validate(options, "exponential schedule");
  if (!options.gamma) refuse_missing("exponential schedule", "gamma", "the factor of each step");
  return [gamma = *options.gamma](const SchedulePoint& at) {
    return at.base_lr * std::pow(gamma, static_cast<double>(at.step));
  };
}

Schedule linear_schedule(LinearScheduleOptions options) {
  validate(options, "linear schedule");
  return [options](const SchedulePoint& at) {
    const std::int64_t total = length_of(options.total_iters, at, "linear schedule, total_iters");
    return at.base_lr * linear_factor(options.start_factor, options.end_factor, at.step, total);
  };
}

Schedule polynomial_schedule(PolynomialScheduleOptions options) {
  validate(options, "polynomial schedule");
  return [options](const SchedulePoint& at) {
    const std::int64_t total = length_of(options.total_iters, at, "polynomial schedule, total_iters");
    return at.base_lr * std::pow(linear_factor(1, 0, at.step, total), options.power);
  };
}

Schedule inverse_sqrt_schedule(InverseSqrtScheduleOptions options) {
  validate(options, "inverse_sqrt schedule");
  return [options](const SchedulePoint& at) {
    constexpr std::int64_t kWithoutWarmup = 10000;
    const auto scale =
        static_cast<double>(options.timescale.value_or(at.started_at > 0 ? at.started_at : kWithoutWarmup));
    return at.base_lr * std::sqrt(scale / (scale + static_cast<double>(at.step)));
  };
}

Schedule plateau_schedule(PlateauScheduleOptions options) {
  validate(options, "plateau schedule");
  Schedule schedule = [options](const SchedulePoint& at) {
    double lr = at.base_lr;
    for (std::int64_t i = 0; i < at.plateaus; ++i) {
      const double reduced = std::max(lr * options.factor, options.min_lr);
      if (!(lr - reduced > options.eps)) break;  // later reductions would be skipped too
      lr = reduced;
    }
    return lr;
  };
  schedule.plateau = std::move(options);
  return schedule;
}

}  // namespace kindling
