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

// Where in the run a learning rate is wanted. Steps are optimizer steps, or epochs with
// ScheduleInterval::epoch.
struct SchedulePoint {
  std::int64_t step = 0;         // done before this one: 0 for the first
  std::int64_t total_steps = 0;  // of the whole run; 0: not known
  double base_lr = 0;            // the optimizer's own
  std::int64_t started_at = 0;  // steps of the run before the schedule: of a warm-up, of others in a sequence
  std::int64_t plateaus = 0;    // how often the value has stopped improving that Schedule::plateau asks for
};

template <class F>
concept GivesNoRate = std::invocable<F&, const SchedulePoint&> &&
    !std::convertible_to<std::invoke_result_t<F&, const SchedulePoint&>, double>;

// The learning rate as a pure function of the point: nothing to save, nothing to restore.
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

  // The momentum beside it (Optimizer::set_momentum); empty: the optimizer's own.
  std::function<double(const SchedulePoint&)> momentum{};
  bool needs_momentum = false;  // an optimizer without momentum is an error; otherwise it goes without
  // What SchedulePoint::plateaus counts. The trainer does, saves the counter and goes on with it.
  std::optional<PlateauScheduleOptions> plateau{};
};

// What a schedule counts. Plateaus are counted in epochs in any case.
enum class ScheduleInterval { step, epoch };

// Gives every group of the optimizer its rate (of its own base rate), and the optimizer its momentum. Throws
// ConfigError where the schedule needs a momentum and there is none.
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
// Linear from b·warmup_start_factor to b over warmup_steps; then `after`, which counts its steps from there.
KINDLING_API Schedule with_warmup(Schedule after, WarmupOptions options);

struct SequenceScheduleOptions {
  std::vector<std::int64_t> milestones{};
  static constexpr auto fields =
      kindling::fields(kindling::field("milestones", &SequenceScheduleOptions::milestones,
                                       {.doc = "steps at which the next part begins", .min = 1}));
};
// torch's SequentialLR: part i from milestones[i - 1] on; each counts its steps from there, and its run ends
// at the next milestone. A part without a momentum keeps what the one before it has ended with. Throws
// ConfigError for milestones that do not rise or are not one fewer than the parts, and for a plateau
// schedule.
KINDLING_API Schedule sequence_schedule(std::vector<Schedule> parts, SequenceScheduleOptions options);

}  // namespace kindling
