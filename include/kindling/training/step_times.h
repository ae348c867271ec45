#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kindling/base/export.h"
#include "kindling/data/data_module.h"
#include "kindling/metrics/logged_values.h"
#include "kindling/nn/module.h"
#include "kindling/training/trainer_options.h"

namespace kindling {

// Which steps of a training are measured.
struct StepTimesOptions {
  std::int64_t warm_up_steps = 50;  // at least 1: memory gets its sizes, and a step graph is recorded
  std::int64_t steps = 300;         // behind them; at least 1
};

// What an optimizer step takes, and where its time goes.
struct StepTimes {
  double seconds = 0;      // of a step, by the clock, until the device has done it
  double cpu_seconds = 0;  // of a step, of all threads of the process
  // Shares of the host's time, which add up to 1. Updates include clipping and the look for numbers that are
  // not finite; the rest is what is between steps and at the ends of epochs.
  double data = 0, forward_backward = 0, update = 0, log = 0, rest = 0;
  std::string why_not_recorded{};  // empty: a step graph was used (docs/explain/step_capture.md)
  NamedValues last_step{};         // what the last one has logged
};

// Measures steps of a training: with the trainer's precision, accumulation, clipping, optimizer, step graph
// and device, but without validations, callbacks, loggers and schedule. It begins where a fit would begin, so
// that two measurements see the same steps; the model is afterwards what it was, as with find_lr(). Reading
// the clocks costs each step some tenths of a microsecond.
//
// Throws ConfigError for numbers of steps below 1, Error where the training ends before its steps are done:
// it has diverged.
KINDLING_API StepTimes measure_steps(const TrainerOptions& trainer, const std::shared_ptr<Module>& model,
                                     DataModule& data, const StepTimesOptions& options = {});

}  // namespace kindling
