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

// Names, defaults and meaning are those of Lightning's LearningRateFinder.
struct LrFinderOptions {
  double min_lr = 1e-8, max_lr = 1;  // of the first step and of the last one
  std::int64_t num_training_steps = 100;
  std::string mode = "exponential";  // how the rate grows from step to step; or "linear"
  // A smoothed loss above so many times the smallest one ends the search; 0: nothing does but a loss that is
  // not finite. Losses below 0 have no such bound.
  double early_stop_threshold = 4;

  static constexpr auto fields = kindling::fields(
      kindling::field("min_lr", &LrFinderOptions::min_lr,
                      {.doc = "learning rate of the first step", .min = 0, .min_excluded = true}),
      kindling::field("max_lr", &LrFinderOptions::max_lr,
                      {.doc = "learning rate of the last step", .min = 0, .min_excluded = true}),
      kindling::field("num_training_steps", &LrFinderOptions::num_training_steps,
                      {.doc = "optimizer steps of the search", .min = 2}),
      kindling::field("mode", &LrFinderOptions::mode,
                      {.doc = "how the rate grows from step to step", .choices = "exponential|linear"}),
      kindling::field(
          "early_stop_threshold", &LrFinderOptions::early_stop_threshold,
          {.doc = "end the search when the smoothed loss exceeds the smallest one by this factor; 0: never",
           .min = 0}));
};

// The losses of a training whose learning rate grew from step to step.
struct KINDLING_API LrFinderResult {
  std::vector<double> lrs{}, losses{};  // of each step
  // With what the losses before say of it: s ← 0.98·s + 0.02·loss, divided by 1 - 0.98^steps.
  std::vector<double> smoothed{};
  double initial_lr = 0;       // that the optimizer was made with (its first group)
  bool stopped_early = false;  // by the threshold, or by a loss that was not finite
  bool is_exponential = true;  // the rates grew by a factor

  // The rate of the step at which the smoothed loss falls most steeply from step to step, without the first
  // and the last ones; nothing where it falls nowhere, or where fewer than two steps are left. (Smith 2017,
  // "Cyclical Learning Rates for Training Neural Networks"; the rule is Lightning's up to 2.5.)
  std::optional<double> suggestion(std::int64_t skip_begin = 10, std::int64_t skip_end = 1) const;
  // Smoothed loss over learning rate, with the suggestion as an upright line.
  Chart chart() const;
};

// Trains for some steps with a growing learning rate, as a Trainer with these options would, and then leaves
// everything as it was: weights, buffers, gradients, modes, hidden states, board and device of the model,
// lazy layers without parameters, random state, place in the data. What a model keeps elsewhere is its own
// matter. Heeded are the options that make a step (optimizer, precision, clipping, accumulation, device,
// limits of training batches, …); callbacks, loggers, schedule, validations and the training's length are
// not. Parameter groups keep the ratios of their rates; `lrs` are those of the first one.
//
// The losses come to the host asynchronously while steps go on, so on a card some steps more may be run than
// are used. A stop that is requested ends the search after the step it is in.
// Throws ConfigError for options out of range, for a ManualModule (it has optimizers of its own) and for an
// optimizer that evaluates the loss anew (Lbfgs).
KINDLING_API LrFinderResult find_lr(const TrainerOptions& trainer, const std::shared_ptr<Module>& model,
                                    DataModule& data, const LrFinderOptions& options = {},
                                    const StopToken& stop = {});

// Throws what find_lr() would throw for a model with optimizers of its own, without a search. Of lazy layers'
// optimizers only the search can tell.
KINDLING_API void require_one_lr(const TrainerOptions& trainer, Module& model);

}  // namespace kindling
