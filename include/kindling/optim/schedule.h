#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/optim/plateau.h"

namespace kindling {

class Optimizer;

// The point in the run for which a learning rate is computed. Steps are optimizer steps, or epochs with
// ScheduleInterval::epoch.
struct SchedulePoint {
  std::int64_t step = 0;         // done before this one: 0 for the first
  std::int64_t total_steps = 0;  // of the whole run; 0: unknown
  double base_lr = 0;            // the optimizer's initial learning rate
  // steps of the run before the schedule: of a warm-up, or of earlier parts of a sequence
  std::int64_t started_at = 0;
  std::int64_t plateaus = 0;  // how often the value of Schedule::plateau has stopped improving
};

template <class F>
concept GivesNoRate = std::invocable<F&, const SchedulePoint&> &&
    !std::convertible_to<std::invoke_result_t<F&, const SchedulePoint&>, double>;

// The learning rate as a pure function of the point: there is no state to save.
class Schedule : public std::function<double(const SchedulePoint&)> {
 public:
  using function::function;
  Schedule() = default;
  Schedule(function rate) : function(std::move(rate)) {}

  // Gives a one-line compiler error.
  template <GivesNoRate F>
  Schedule(const F&) {
    static_assert(sizeof(F) == 0, "a schedule returns the learning rate of the step, a double");
  }

  // The momentum to set with it (Optimizer::set_momentum); empty: unchanged.
  std::function<double(const SchedulePoint&)> momentum{};
  bool needs_momentum = false;  // true: an optimizer without momentum is an error; false: it is ignored
  // Each group's weight decay follows a cosine from its first value to this one at the end of the run.
  std::optional<double> weight_decay_end{};
  // What SchedulePoint::plateaus counts. The trainer counts it, and saves and restores the counter.
  std::optional<PlateauScheduleOptions> plateau{};
};

// The unit of a schedule's steps. Plateaus are always counted in epochs.
enum class ScheduleInterval { step, epoch };

// Sets the rate of every group of the optimizer (from the group's base rate), and the optimizer's momentum
// and weight decays. Throws ConfigError if the schedule needs a momentum or a weight decay and there is none.
KINDLING_API void apply_schedule(const Schedule& schedule, SchedulePoint at, Optimizer& optimizer);

struct WarmupOptions {
  std::int64_t warmup_steps = 0;
  double warmup_start_factor = 1.0 / 3;
  static constexpr auto fields = kindling::fields(
      kindling::field("warmup_steps", &WarmupOptions::warmup_steps,
                      {.doc = "steps of linear warm-up before the schedule", .min = 0}),
      kindling::field("warmup_start_factor", &WarmupOptions::warmup_start_factor,
                      {.doc = "factor of the learning rate in the first warm-up step", .min = 0, .max = 1}));
};
// Linear from b·warmup_start_factor to b over warmup_steps; then `after`, whose steps count from there.
KINDLING_API Schedule with_warmup(Schedule after, WarmupOptions options);

// The schedule (empty: a constant rate), and a weight decay of end + (start − end)·(1 + cos(π·t / T)) / 2 in
// step t of T for each group whose weight decay is not 0 (Caron et al., 2021: it rises from 0.04 to 0.4).
// Throws ConfigError for an end below 0 or not finite.
KINDLING_API Schedule with_weight_decay_end(Schedule schedule, double end);

struct SequenceScheduleOptions {
  std::vector<std::int64_t> milestones{};
  static constexpr auto fields = kindling::fields(
      kindling::field("milestones", &SequenceScheduleOptions::milestones,
                      {.doc = "steps at which the next part begins", .min = 1, .example = "[30, 60]"}));
};
// Like torch's SequentialLR: part i starts at milestones[i - 1]; its steps count from there, and its run ends
// at the next milestone. A part without a momentum keeps the last value of the part before. Throws
// ConfigError if milestones do not increase or their number is not one less than that of the parts, and for
// parts that wait for a plateau or change the weight decay.
KINDLING_API Schedule sequence_schedule(std::vector<Schedule> parts, SequenceScheduleOptions options);

}  // namespace kindling
