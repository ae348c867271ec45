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

// Which steps of a run are measured.
struct StepTimesOptions {
  std::int64_t warm_up_steps = 50;  // at least 1: memory is allocated and steps are captured
  std::int64_t steps = 300;         // measured steps after the warm-up; at least 1
};

// The time of an optimizer step, and its parts.
struct StepTimes {
  double seconds = 0;      // wall-clock time per step, until the device has finished it
  double cpu_seconds = 0;  // CPU time per step, over all threads of the process
  // Fractions of the host's time, which add up to 1. `update` includes clipping and the check for non-finite
  // values; `rest` is the time between steps and at the ends of epochs.
  double data = 0, forward_backward = 0, update = 0, log = 0, rest = 0;
  std::string why_not_recorded{};  // empty: steps were captured (docs/explain/step_capture.md)
  NamedValues last_step{};         // values logged by the last step
};

// Measures training steps with the trainer's precision, accumulation, clipping, optimizer, step capture and
// device, but without validations, callbacks, loggers and schedule. Starts where a fit would start, so that
// two measurements time the same steps. Restores the model, as find_lr() does. Reading the clocks costs each
// step a few tenths of a microsecond.
//
// Throws ConfigError for numbers of steps below 1, and Error if the run diverges before its steps are done.
KINDLING_API StepTimes measure_steps(const TrainerOptions& trainer, const std::shared_ptr<Module>& model,
                                     DataModule& data, const StepTimesOptions& options = {});

}  // namespace kindling
