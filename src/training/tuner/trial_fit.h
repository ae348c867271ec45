#pragma once

#include <cstdint>
#include <memory>

#include "device/random_state.h"
#include "kindling/data/data_module.h"
#include "kindling/device/device.h"
#include "kindling/distributed/process_group.h"
#include "kindling/metrics/progress_board.h"
#include "kindling/nn/module.h"
#include "kindling/training/callback.h"
#include "kindling/training/stop_token.h"
#include "kindling/training/trainer_options.h"
#include "nn/model_use.h"
#include "nn/scoped_model_state.h"

namespace kindling {

// Returns the options of a run for a few of its steps, without loggers, callbacks, limits, schedules and
// validations.
TrainerOptions trial_options(TrainerOptions of_training, std::int64_t num_steps);

// Returns the device of such a run.
Device trial_device(const TrainerOptions& options);

// Returns the ranks that train together; nullptr: a single process.
ProcessGroup* group_of(const TrainerOptions& options);

// Requests a stop on all ranks if one of them has requested it; returns whether a stop is requested. It
// arrives on the ranks at different times, and searches that end at different trials would wait for each
// other forever. Collective.
bool share_stop(ProcessGroup* group, const StopToken& stop);

// Returns the largest of the ranks' numbers. Collective.
double largest_of_ranks(ProcessGroup* group, double number);

// The destructor restores a model, its trainer, its board and the random state, so that the model may be
// trained on `device` in between.
class TrialScope {
 public:
  // `model` outlives it.
  TrialScope(Module& model, Device device);
  ~TrialScope();
  TrialScope(const TrialScope&) = delete;
  TrialScope& operator=(const TrialScope&) = delete;

 private:
  const ModelUse use_;
  Module& model_;
  ProgressBoard board_;
  const ScopedModelState state_;
  const ScopedTrainer trainer_;
  const RandomStateGuard random_state_;
};

// Forwards a stop requested through another token to its trainer.
class StopElsewhere : public Callback {
 public:
  explicit StopElsewhere(StopToken stop) : stop_(std::move(stop)) {}
  void on_train_batch_end(Trainer& trainer, Module& model) override;
  void on_validation_start(Trainer& trainer, Module& model) override;

 private:
  StopToken stop_;
};

}  // namespace kindling
