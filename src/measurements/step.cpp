#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "kindling/base/number_text.h"
#include "kindling/training/trainer_options.h"
#include "measurements/measurements.h"

namespace kindling {
namespace {

// Eager or captured steps.
struct StepKind {
  const char* step_graph;  // of the trainer
  const char* name;
};
constexpr std::array<StepKind, 2> kStepKinds{{{"off", "eager"}, {"on", "step graph"}}};

using Trials = std::vector<StepTimes>;

Timing timing_of_trials(const Trials& trials, double StepTimes::*seconds) {
  std::vector<double> all;
  for (const StepTimes& trial : trials) all.push_back(trial.*seconds);
  return timing_of(std::move(all));
}

double mean_of(const Trials& trials, double StepTimes::*share) {
  double sum = 0;
  for (const StepTimes& trial : trials) sum += trial.*share;
  return sum / static_cast<double>(trials.size());
}

BenchRow fields_of_shares(const Trials& trials) {
  BenchRow row;
  for (const auto& [key, title, share] :
       {std::tuple{"data_share", "data", &StepTimes::data},
        std::tuple{"forward_backward_share", "forward+backward", &StepTimes::forward_backward},
        std::tuple{"update_share", "clip+update", &StepTimes::update},
        std::tuple{"log_share", "log", &StepTimes::log},
        std::tuple{"rest_share", "rest", &StepTimes::rest}}) {
    const double mean = mean_of(trials, share);
    row.push_back({key, mean, title, rounded_text(100 * mean) + " %"});
  }
  return row;
}

BenchRow row_of(Device device, const StepKind& kind, const Trials& trials) {
  const Timing cpu_time = timing_of_trials(trials, &StepTimes::cpu_seconds);
  const std::string& reason = trials.back().why_not_recorded;
  return joined({fields_of(device, "device"),
                 {{"step_graph", kind.step_graph}, {"", kind.name, "steps"}},
                 fields_of(timing_of_trials(trials, &StepTimes::seconds)),
                 {{"cpu_median_s", cpu_time.median_s, "CPU time", time_text(cpu_time.median_s)},
                  {"cpu_min_s", cpu_time.min_s},
                  {"cpu_max_s", cpu_time.max_s}},
                 fields_of_shares(trials),
                 {{"recorded", reason.empty()},
                  {"why_not_recorded", reason, "captured", reason.empty() ? "yes" : "no: " + reason}}});
}

bool are_equal_to_the_bit(const NamedValues& a, const NamedValues& b) {
  return std::ranges::equal(a, b, [](const auto& one, const auto& other) {
    return one.first == other.first &&
           std::bit_cast<std::uint64_t>(one.second) == std::bit_cast<std::uint64_t>(other.second);
  });
}

std::string text_of(const NamedValues& values) {
  std::string text;
  for (const auto& [name, value] : values)
    text += (text.empty() ? "" : ", ") + name + " " + number_text(value);
  return text;
}

void compare(const Trials& eager, const Trials& recorded, BenchReport& report) {
  const double speed_up = timing_of_trials(eager, &StepTimes::seconds).median_s /
                          timing_of_trials(recorded, &StepTimes::seconds).median_s;
  const NamedValues &without = eager.back().last_step, &with = recorded.back().last_step;
  const bool is_equal = are_equal_to_the_bit(without, with);
  report.summary["speed_up"] = speed_up;
  report.summary["equal_to_the_bit"] = is_equal;
  if (recorded.back().why_not_recorded.empty())
    report.notes.push_back("steps are " + rounded_text(speed_up) + " times as fast with step capture");
  report.notes.push_back(is_equal ? "the last step of both has logged bit-identical values: " + text_of(with)
                                  : "the last step has logged different values with step capture: " +
                                        text_of(with) + " instead of " + text_of(without));
}

// Notes which kind of steps a fit with these options would run.
void tell_what_fit_takes(const TrainerOptions& trainer, const Module& model, const Trials& recorded,
                         BenchReport& report) {
  const bool is_wanted =
      trainer.step_graph == "on" || (trainer.step_graph != "off" && model.has_static_graph());
  const bool is_taken = is_wanted && recorded.back().why_not_recorded.empty();
  report.summary["fit_records"] = is_taken;
  std::string note = "trainer.step_graph = \"" + trainer.step_graph + "\": a fit runs ";
  note += is_taken ? "captured steps" : "eager steps";
  if (!is_wanted && trainer.step_graph != "off") note += ", because the model's has_static_graph() is false";
  report.notes.push_back(note + "; validations, callbacks, loggers and schedule are not measured here");
}

}  // namespace

BenchReport measure_step(const TrainerOptions& trainer, const MakeModel& make_model, DataModule& data,
                         const StepBenchOptions& options) {
  BenchReport report{
      .title = std::to_string(options.steps.steps) + " steps of " + options.name,
      .chart = {.title = "Steps of " + options.name, .xlabel = "repeat", .ylabel = "ms per step"},
      .summary = {{"steps", options.steps.steps}, {"warm_up_steps", options.steps.warm_up_steps}}};
  std::array<Trials, kStepKinds.size()> trials;
  // Alternating, because other processes may be running.
  for (std::int64_t repeat = 0; repeat < options.repeats; ++repeat)
    for (std::size_t i = 0; i < kStepKinds.size(); ++i) {
      TrainerOptions trial = trainer;
      trial.step_graph = kStepKinds[i].step_graph;
      trials[i].push_back(measure_steps(trial, make_model(), data, options.steps));
      Curve& curve = report.curve(kStepKinds[i].name);
      curve.x.push_back(static_cast<double>(repeat) + 1);
      curve.y.push_back(trials[i].back().seconds * 1e3);
    }
  const auto cards = first_gpus(trainer.num_gpus);
  if (trainer.num_gpus != 0) report.note_missing_card("; measured on the CPU instead");
  for (std::size_t i = 0; i < kStepKinds.size(); ++i)
    report.rows.push_back(row_of(cards.empty() ? cpu() : cards.front(), kStepKinds[i], trials[i]));
  compare(trials[0], trials[1], report);
  tell_what_fit_takes(trainer, *make_model(), trials[1], report);
  return report;
}

}  // namespace kindling
