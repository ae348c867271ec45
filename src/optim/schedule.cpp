#include "kindling/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/optim/optimizer.h"
#include "optim/schedule_length.h"

namespace kindling {
namespace {

// Converts a point for a schedule that begins at `start`. A known length stays known.
SchedulePoint seen_from(SchedulePoint at, std::int64_t start) {
  at.step = std::max<std::int64_t>(at.step - start, 0);
  if (at.total_steps > 0) at.total_steps = std::max<std::int64_t>(at.total_steps - start, 1);
  at.started_at += start;
  return at;
}

[[noreturn]] void refuse_sequence(std::string found, std::string wanted) {
  throw ConfigError({.place = "sequence schedule", .found = std::move(found), .wanted = std::move(wanted)});
}

struct Sequence {
  std::vector<Schedule> parts;
  std::vector<std::int64_t> milestones;

  std::size_t part_at(std::int64_t step) const {
    return static_cast<std::size_t>(std::ranges::upper_bound(milestones, step) - milestones.begin());
  }

  SchedulePoint seen_by(std::size_t part, SchedulePoint at) const {
    if (part < milestones.size()) at.total_steps = milestones[part];
    return seen_from(at, part == 0 ? 0 : milestones[part - 1]);
  }

  double rate(const SchedulePoint& at) const {
    const std::size_t part = part_at(at.step);
    return parts[part](seen_by(part, at));
  }

  // For a part without a momentum: the last one of the previous parts, or the first one of the later ones.
  double momentum(SchedulePoint at) const {
    std::size_t part = part_at(at.step);
    while (part > 0 && !parts[part].momentum) at.step = milestones[--part] - 1;
    while (!parts[part].momentum) at.step = milestones[part++];
    return parts[part].momentum(seen_by(part, at));
  }
};

void check(const Sequence& sequence) {
  const std::size_t num_parts = sequence.parts.size(), num_milestones = sequence.milestones.size();
  if (num_parts == 0) refuse_sequence("it has no parts", "at least one");
  if (num_parts != num_milestones + 1)
    refuse_sequence(
        std::to_string(num_parts) + " parts and " + std::to_string(num_milestones) + " milestones",
        "one milestone fewer than parts");
  if (std::ranges::adjacent_find(sequence.milestones, std::greater_equal<>()) != sequence.milestones.end())
    refuse_sequence("a milestone is not above the one before it", "increasing milestones");
  for (const Schedule& part : sequence.parts) {
    if (!part) refuse_sequence("a part is empty", "a schedule");
    if (part.plateau) refuse_sequence("a part waits for a plateau", "parts that depend on the step alone");
    if (part.weight_decay_end)
      refuse_sequence("a part changes the weight decay", "with_weight_decay_end() around the sequence");
  }
}

void apply_weight_decay(double end, const SchedulePoint& at, Optimizer& optimizer) {
  const auto length = static_cast<double>(length_of({}, at, "weight_decay_end"));
  const double done = std::min(static_cast<double>(at.step), length) / length;
  bool has_any = false;
  for (std::size_t group = 0; group < optimizer.groups().size(); ++group) {
    const double start = *optimizer.groups()[group].weight_decay;
    if (start == 0) continue;
    has_any = true;
    optimizer.set_weight_decay(group, end + (start - end) * (1 + std::cos(std::numbers::pi * done)) / 2);
  }
  if (!has_any)
    throw ConfigError({.place = "weight_decay_end",
                       .found = "it is set, but the optimizer has no weight decay",
                       .wanted = "a weight_decay above 0 to start from"});
}

}  // namespace

std::int64_t length_of(const std::optional<std::int64_t>& set, const SchedulePoint& at, const char* key) {
  if (set) return *set;
  if (at.total_steps > 0) return at.total_steps;
  throw ConfigError({.place = key,
                     .found = "it is not set, and the length of the run is unknown",
                     .wanted = "a number of steps",
                     .remedy = "set it in a custom training loop"});
}

void refuse_missing(const char* schedule, const char* key, const char* wanted) {
  throw ConfigError({.place = schedule, .found = std::string(key) + " is not set", .wanted = wanted});
}

void apply_schedule(const Schedule& schedule, SchedulePoint at, Optimizer& optimizer) {
  for (std::size_t group = 0; group < optimizer.groups().size(); ++group) {
    at.base_lr = *optimizer.groups()[group].lr;
    optimizer.set_lr(group, schedule(at));
  }
  if (schedule.weight_decay_end) apply_weight_decay(*schedule.weight_decay_end, at, optimizer);
  if (!schedule.momentum) return;
  if (optimizer.has_momentum()) return optimizer.set_momentum(schedule.momentum(at));
  if (schedule.needs_momentum)
    throw ConfigError({.place = "schedule",
                       .found = "it changes the momentum, but the optimizer has none",
                       .wanted = "an optimizer with momentum or betas",
                       .remedy = "set cycle_momentum = false to keep the momentum unchanged"});
}

Schedule with_warmup(Schedule after, WarmupOptions options) {
  validate(options, "warm-up");
  if (options.warmup_steps == 0) return after;
  const std::int64_t steps = options.warmup_steps;
  Schedule warm = [after, steps, start = options.warmup_start_factor](const SchedulePoint& at) {
    return at.step < steps ? at.base_lr * linear_factor(start, 1, at.step, steps)
                           : after(seen_from(at, steps));
  };
  if (after.momentum)
    warm.momentum = [momentum = after.momentum, steps](const SchedulePoint& at) {
      return momentum(seen_from(at, steps));
    };
  warm.needs_momentum = after.needs_momentum;
  warm.plateau = after.plateau;
  warm.weight_decay_end = after.weight_decay_end;
  return warm;
}

Schedule with_weight_decay_end(Schedule schedule, double end) {
  if (!std::isfinite(end) || end < 0)
    throw ConfigError({.place = "weight_decay_end",
                       .found = "it is " + number_text(end),
                       .wanted = "a finite number, at least 0"});
  if (!schedule) schedule = [](const SchedulePoint& at) { return at.base_lr; };
  schedule.weight_decay_end = end;
  return schedule;
}

Schedule sequence_schedule(std::vector<Schedule> parts, SequenceScheduleOptions options) {
  validate(options, "sequence schedule");
  const Sequence sequence{std::move(parts), std::move(options.milestones)};
  check(sequence);
  Schedule schedule = [sequence](const SchedulePoint& at) { return sequence.rate(at); };
  const auto has_momentum = [](const Schedule& part) { return static_cast<bool>(part.momentum); };
  if (std::ranges::any_of(sequence.parts, has_momentum))
    schedule.momentum = [sequence](const SchedulePoint& at) { return sequence.momentum(at); };
  schedule.needs_momentum = std::ranges::any_of(sequence.parts, &Schedule::needs_momentum);
  return schedule;
}

}  // namespace kindling
