#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "kindling/base/export.h"
#include "kindling/config/options.h"

namespace kindling {

// Where in the run a learning rate is wanted. Steps are optimizer steps, or epochs with
// ScheduleInterval::epoch.
struct SchedulePoint {
  std::int64_t step = 0;         // done before this one: 0 for the first
  std::int64_t total_steps = 0;  // of the whole run
  double base_lr = 0;            // the optimizer's own
};

template <class F>
concept GivesNoRate = std::invocable<F&, const SchedulePoint&> &&
    !std::convertible_to<std::invoke_result_t<F&, const SchedulePoint&>, double>;

// The learning rate as a pure function of the step: nothing to save, nothing to restore.
class Schedule : public std::function<double(const SchedulePoint&)> {
 public:
  using function::function;
  Schedule() = default;
  Schedule(function rate) : function(std::move(rate)) {}

  // For a message of one line.
  template <GivesNoRate F>
  Schedule(const F&) {
    static_assert(sizeof(F) == 0, "a schedule returns the learning rate of the step, a double");
  }
};

// What a schedule counts.
enum class ScheduleInterval { step, epoch };

// The names are those of torch.optim.lr_scheduler, and so are the values; T_max and total_iters default to
// what the run has (after the warm-up). step counts from 0, b is base_lr.

struct ConstantScheduleOptions {
  double factor = 1;  // PyTorch's default, 1/3, would surprise under this name
  std::int64_t total_iters = 5;
  static constexpr auto fields =
      kindling::fields(kindling::field("factor", &ConstantScheduleOptions::factor,
                                       {.doc = "of the learning rate, for the first steps", .min = 0}),
                       kindling::field("total_iters", &ConstantScheduleOptions::total_iters,
                                       {.doc = "how many steps", .min = 0}));
};
// b·factor for step < total_iters, then b.
KINDLING_API Schedule constant_schedule(ConstantScheduleOptions options = {});

struct StepScheduleOptions {
  std::int64_t step_size = 30;
  double gamma = 0.1;
  static constexpr auto fields = kindling::fields(
      kindling::field("step_size", &StepScheduleOptions::step_size,
                      {.doc = "steps between two drops", .min = 1}),
      kindling::field("gamma", &StepScheduleOptions::gamma, {.doc = "factor of each drop", .min = 0}));
};
// b·gamma^⌊step / step_size⌋.
KINDLING_API Schedule step_schedule(StepScheduleOptions options = {});

struct LinearScheduleOptions {
  double start_factor = 1.0 / 3;
  double end_factor = 1;
  std::optional<std::int64_t> total_iters{};
  static constexpr auto fields = kindling::fields(
      kindling::field("start_factor", &LinearScheduleOptions::start_factor,
                      {.doc = "of the learning rate, at the start", .min = 0}),
      kindling::field("end_factor", &LinearScheduleOptions::end_factor, {.doc = "at the end", .min = 0}),
      kindling::field("total_iters", &LinearScheduleOptions::total_iters,
                      {.doc = "steps from start to end; absent: the run", .min = 1}));
};
// b·(start + (end − start)·min(step / total_iters, 1)).
KINDLING_API Schedule linear_schedule(LinearScheduleOptions options = {});

struct CosineScheduleOptions {
  std::optional<std::int64_t> T_max{};
  double eta_min = 0;
  static constexpr auto fields =
      kindling::fields(kindling::field("T_max", &CosineScheduleOptions::T_max,
                                       {.doc = "steps to the minimum; absent: the run", .min = 1}),
                       kindling::field("eta_min", &CosineScheduleOptions::eta_min,
                                       {.doc = "smallest learning rate", .min = 0}));
};
// eta_min + (b − eta_min)·(1 + cos(π·step / T_max)) / 2 (Loshchilov, Hutter, 2017).
KINDLING_API Schedule cosine_schedule(CosineScheduleOptions options = {});

struct WarmupOptions {
  std::int64_t warmup_steps = 0;
  double warmup_start_factor = 1.0 / 3;
  static constexpr auto fields = kindling::fields(
      kindling::field("warmup_steps", &WarmupOptions::warmup_steps,
                      {.doc = "steps of linear warm-up before the schedule", .min = 0}),
      kindling::field("warmup_start_factor", &WarmupOptions::warmup_start_factor,
                      {.doc = "of the learning rate, at the first step", .min = 0, .max = 1}));
};
// Linear from b·warmup_start_factor to b over warmup_steps; then `after`, which counts its steps from there.
KINDLING_API Schedule with_warmup(Schedule after, WarmupOptions options);

}  // namespace kindling
