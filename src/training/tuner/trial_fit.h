#pragma once

#include <cstdint>
#include <memory>

#include "device/random_state.h"
#include "kindling/data/data_module.h"
#include "kindling/device/device.h"
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
