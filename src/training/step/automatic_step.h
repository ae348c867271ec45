#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "nn/carried_states.h"
#include "training/parallel/gradient_shards.h"
#include "training/parallel/sync_batch_norm.h"
#include "training/step/batch_gradients.h"
#include "training/step/optimizer_update.h"
#include "training/step/step.h"

namespace kindling {

// Weights the batches of one optimizer step so that its gradient is that of the mean over all samples,
// however they are distributed over the batches.
class AccumulationWindow {
 public:
  // `num_batches`: batches of a full window.
  explicit AccumulationWindow(std::int64_t num_batches) : num_batches_(num_batches) {}

  void begin() { samples_ = expected_ = 0; }
  // Returns the factor of the next batch's mean gradient, assuming that all batches are as large as the first
  // one and the window will be full. Returns 0 for a padding batch.
  double add(const Batch& batch) {
    const auto size = static_cast<double>(std::max<std::int64_t>(batch.num_samples(), 1));
    if (expected_ == 0) expected_ = size * static_cast<double>(num_batches_);
    const double samples = batch.is_valid() ? size : 0;
    samples_ += samples;
    return samples / expected_;
  }
  // Returns the factor that corrects the sum of the gradients: 1 if the assumption held.
  double rest() const { return expected_ / samples_; }
  // Times the sum of the gradients, gives the sum over all samples.
  double expected() const { return expected_; }
  double num_samples() const { return samples_; }

 private:
  std::int64_t num_batches_;
  double samples_ = 0, expected_ = 0;
};

// The step of a model with one optimizer, which the trainer runs.
class AutomaticStep : public Step {
 public:
  AutomaticStep(const StepContext& context, std::unique_ptr<BatchGradients> gradients,
                std::unique_ptr<OptimizerUpdate> update);

  StepOutcome run(const Batch& batch, WindowPosition at) override;
  void end_window() override;
  void end_epoch() override { gradients_->end_epoch(); }

 private:
  at::Tensor gradients_of(const Batch& batch, WindowPosition at);
  void update();
  void scale_gradients();
  GradientShare share() const;
  at::Tensor evaluate_again();  // the loss and gradients of the batch, for optimizers that need a closure
  void end_row(double weight);

  const StepContext context_;
  TrainState& state_;
  const std::unique_ptr<BatchGradients> gradients_;
  const std::unique_ptr<OptimizerUpdate> update_;
  AccumulationWindow window_;
  std::optional<GradientShards> shards_;
  const std::shared_ptr<ProcessGroup>
      group_of_norms_;                    // nullptr: each rank has its own batch norm statistics
  bool has_run_ = false;                  // at least once
  const Batch* batch_ = nullptr;          // of the running step
  std::optional<CarriedStates> carried_;  // from before the step, if the loss may be evaluated again
  std::vector<at::Tensor> losses_;        // of the window
};

}  // namespace kindling
