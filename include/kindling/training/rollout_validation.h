#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/data/data_module.h"
#include "kindling/metrics/logged_values.h"
#include "kindling/nn/module.h"
#include "kindling/training/callback.h"
#include "kindling/training/trainer.h"

namespace kindling {

// How far a model that continues trajectories by itself is from the data, after each step.
struct RolloutErrors {
  std::int64_t num_starts = 0;  // rollouts; 0: the data has none
  // Over all numbers of the states after a step: the root of the mean squared error, in the unit of the data,
  // and the root of the sum of squared errors divided by the sum of the squared data.
  std::vector<double> rmse{}, relative{};
  double total_rmse = 0, total_relative = 0;  // the same over all steps
};

// Returns the errors of data.rollouts(): the model gets the state at each start, then its own outputs.
// Batches are transformed as for validation, and errors are added up on the device and copied to the host at
// the end. Makes all steps, whatever TrainerOptions::limit_val_batches and overfit_batches say. Draws no
// random numbers and leaves the model as it was. `on_batch` is called after each batch; what it throws ends
// the pass. Throws DataError for outputs of another shape than the targets. In data-parallel training, each
// rank that calls it evaluates all starts.
KINDLING_API RolloutErrors rollout_errors(Trainer& trainer, const std::shared_ptr<Module>& model,
                                          DataModule& data, const std::function<void()>& on_batch = {});

// Returns the errors under the names that records have:
//   val_rollout_rmse, val_rollout_error        over all steps
//   val_rollout_rmse/N, val_rollout_error/N    after step N, from 1
KINDLING_API NamedValues named_values(const RolloutErrors& errors);

// Adds the errors of rollouts to the record of each epoch that is validated, with the weights that the
// validation has evaluated (EMA and the like).
//
//   ArrayData data({.file = "states.npy", .val_fraction = 0.2, .horizon = 1, .rollout_steps = 20});
//   Trainer trainer({.max_epochs = 10, .callbacks = {std::make_shared<RolloutValidation>()}});
class KINDLING_API RolloutValidation final : public Callback {
 public:
  // Throws ConfigError for data without rollouts.
  void on_fit_start(Trainer& trainer, Module& model) override;
  void on_train_batch_end(Trainer&, Module&) override { has_validated_ = false; }
  void on_validation_end(Trainer&, Module&) override { has_validated_ = true; }
  void on_epoch_record(Trainer& trainer, Module& model, Record& record) override;

 private:
  bool has_validated_ = false;  // since the latest training batch
};

}  // namespace kindling
