#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/charts/chart.h"
#include "kindling/config/options.h"
#include "kindling/data/data_module.h"
#include "kindling/nn/module.h"
#include "kindling/training/stop_token.h"
#include "kindling/training/trainer_options.h"

namespace kindling {

// Names, defaults and meanings are those of Lightning's LearningRateFinder.
struct LrFinderOptions {
  double min_lr = 1e-8, max_lr = 1;  // learning rates of the first and the last step
  std::int64_t num_training_steps = 100;
  std::string mode = "exponential";  // growth of the rate; or "linear"
  // A smoothed loss above the smallest one times this factor ends the search; 0: only a loss that is not
  // finite does. Losses below 0 have no such bound.
  double early_stop_threshold = 4;

  static constexpr auto fields = kindling::fields(
      kindling::field("min_lr", &LrFinderOptions::min_lr,
                      {.doc = "learning rate of the first step", .min = 0, .min_excluded = true}),
      kindling::field(
          "max_lr", &LrFinderOptions::max_lr,
          {.doc = "learning rate of the last step", .min = 0, .min_excluded = true, .example = "0.1"}),
      kindling::field("num_training_steps", &LrFinderOptions::num_training_steps,
                      {.doc = "optimizer steps of the search", .min = 2}),
      kindling::field("mode", &LrFinderOptions::mode,
                      {.doc = "how the rate grows from step to step", .choices = "exponential|linear"}),
      kindling::field(
          "early_stop_threshold", &LrFinderOptions::early_stop_threshold,
          {.doc = "end the search when the smoothed loss exceeds the smallest one by this factor; 0: never",
           .min = 0}));
};

// The losses of a run whose learning rate grew from step to step.
struct KINDLING_API LrFinderResult {
  std::vector<double> lrs{}, losses{};  // one per step
  // Bias-corrected moving average: s ← 0.98·s + 0.02·loss, divided by 1 - 0.98^steps.
  std::vector<double> smoothed{};
  double initial_lr = 0;       // learning rate of the optimizer's first group before the search
  bool stopped_early = false;  // by the threshold, or by a loss that was not finite
  bool is_exponential = true;  // the rates grew by a constant factor

  // Returns the learning rate at the steepest descent of the smoothed loss, without the first skip_begin and
  // the last skip_end steps. Returns nothing if the loss never falls or fewer than two steps remain. (Smith
  // 2017, "Cyclical Learning Rates for Training Neural Networks"; the rule is Lightning's up to 2.5.)
  std::optional<double> suggestion(std::int64_t skip_begin = 10, std::int64_t skip_end = 1) const;
  // Returns a chart of the smoothed loss over the learning rate, with the suggestion as a vertical line.
  Chart chart() const;
};

// Trains for some steps with a growing learning rate, as a Trainer with these options would, and then
// restores everything: the model's weights, buffers, gradients, modes, hidden states, board and device, lazy
// layers without parameters, random state and the position in the data. State that a model keeps elsewhere is
// not restored. The options that make up a step apply (optimizer, precision, clipping, accumulation, device,
// limits of training batches, …); callbacks, loggers, schedule, validations and the run's length do not.
// Parameter groups keep the ratios of their rates; `lrs` are those of the first group.
//
// With several ranks, all of them call it together and get the same result: the losses are those of rank 0,
// as in step records, and a stop requested on one rank is requested on all.
//
// The losses are copied to the host asynchronously, so on a GPU a few more steps may run than are used. A
// requested stop ends the search after the current step. Throws ConfigError for options out of range, for a
// ManualModule (it has several optimizers) and for an optimizer that evaluates the loss repeatedly (Lbfgs).
KINDLING_API LrFinderResult find_lr(const TrainerOptions& trainer, const std::shared_ptr<Module>& model,
                                    DataModule& data, const LrFinderOptions& options = {},
                                    const StopToken& stop = {});

// Throws what find_lr() would throw for a model with custom optimizers, without running a search. Optimizers
// of lazy layers are only checked by the search.
KINDLING_API void require_one_lr(const TrainerOptions& trainer, Module& model);

}  // namespace kindling
