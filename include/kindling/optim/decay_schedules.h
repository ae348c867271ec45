#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/optim/schedule.h"

// Schedules that multiply the learning rate by a factor. Names and values are those of
// torch.optim.lr_scheduler; total_iters defaults to the length of the run (after the warm-up, within its part
// of a sequence). step counts from 0, b is base_lr. All throw ConfigError for options that are out of range
// or missing.
namespace kindling {

struct ConstantScheduleOptions {
  double factor = 1;  // PyTorch's default, 1/3, would be surprising under this name
  std::int64_t total_iters = 5;
  static constexpr auto fields =
      kindling::fields(kindling::field("factor", &ConstantScheduleOptions::factor,
                                       {.doc = "factor of the learning rate in the first steps", .min = 0}),
                       kindling::field("total_iters", &ConstantScheduleOptions::total_iters,
                                       {.doc = "number of these steps", .min = 0}));
};
// b·factor for step < total_iters, then b.
KINDLING_API Schedule constant_schedule(ConstantScheduleOptions options = {});

struct StepScheduleOptions {
  std::int64_t step_size = 30;
  double gamma = 0.1;
  static constexpr auto fields = kindling::fields(
      kindling::field("step_size", &StepScheduleOptions::step_size,
                      {.doc = "steps between two reductions", .min = 1}),
      kindling::field("gamma", &StepScheduleOptions::gamma, {.doc = "factor of each reduction", .min = 0}));
};
// b·gamma^⌊step / step_size⌋.
KINDLING_API Schedule step_schedule(StepScheduleOptions options = {});

struct MultistepScheduleOptions {
  std::vector<std::int64_t> milestones{};  // at least one; a repeated one counts twice
  double gamma = 0.1;
  static constexpr auto fields = kindling::fields(
      kindling::field("milestones", &MultistepScheduleOptions::milestones,
                      {.doc = "steps at which the rate is reduced", .min = 0, .example = "[30, 60]"}),
      kindling::field("gamma", &MultistepScheduleOptions::gamma,
                      {.doc = "factor of each reduction", .min = 0}));
};
// b·gamma^(number of milestones ≤ step).
KINDLING_API Schedule multistep_schedule(MultistepScheduleOptions options);

struct ExponentialScheduleOptions {
  std::optional<double> gamma{};  // must be set
  static constexpr auto fields =
      kindling::fields(kindling::field("gamma", &ExponentialScheduleOptions::gamma,
                                       {.doc = "factor per step; required", .min = 0, .example = "0.95"}));
};
// b·gamma^step.
KINDLING_API Schedule exponential_schedule(ExponentialScheduleOptions options);

struct LinearScheduleOptions {
  double start_factor = 1.0 / 3;
  double end_factor = 1;
  std::optional<std::int64_t> total_iters{};
  static constexpr auto fields = kindling::fields(
      kindling::field("start_factor", &LinearScheduleOptions::start_factor,
                      {.doc = "factor of the learning rate at the start", .min = 0}),
      kindling::field("end_factor", &LinearScheduleOptions::end_factor,
                      {.doc = "factor of the learning rate at the end", .min = 0}),
      kindling::field(
          "total_iters", &LinearScheduleOptions::total_iters,
          {.doc = "steps from start to end; absent: the rest of the run", .min = 1, .example = "100"}));
};
// b·(start + (end − start)·min(step / total_iters, 1)).
KINDLING_API Schedule linear_schedule(LinearScheduleOptions options = {});

struct PolynomialScheduleOptions {
  std::optional<std::int64_t> total_iters{};
  double power = 1;
  static constexpr auto fields = kindling::fields(
      kindling::field("total_iters", &PolynomialScheduleOptions::total_iters,
                      {.doc = "steps until 0; absent: the rest of the run", .min = 1, .example = "100"}),
      kindling::field("power", &PolynomialScheduleOptions::power,
                      {.doc = "exponent of the decay; 1: linear", .min = 0}));
};
// b·(1 − min(step / total_iters, 1))^power.
KINDLING_API Schedule polynomial_schedule(PolynomialScheduleOptions options = {});

struct InverseSqrtScheduleOptions {
  std::optional<std::int64_t> timescale{};
  static constexpr auto fields = kindling::fields(kindling::field(
      "timescale", &InverseSqrtScheduleOptions::timescale,
      {.doc = "time scale in steps; absent: the warm-up steps, or 10000", .min = 1, .example = "1000"}));
};
// b·sqrt(w / (w + step)), w the timescale: after a warm-up of w steps, b·sqrt(w / the run's step) (Vaswani et
// al., 2017; names and defaults as in Hugging Face's get_inverse_sqrt_schedule).
KINDLING_API Schedule inverse_sqrt_schedule(InverseSqrtScheduleOptions options = {});

// b·factor once for every plateau (plateau.h), not below min_lr; reductions of less than eps are skipped.
KINDLING_API Schedule plateau_schedule(PlateauScheduleOptions options = {});

}  // namespace kindling
