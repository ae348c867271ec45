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

// The weights of the batches of one optimizer step. Its gradient is that of the mean over all their samples,
// however the samples are spread over the batches.
class AccumulationWindow {
 public:
  // `num_batches`: of a full window.
  explicit AccumulationWindow(std::int64_t num_batches) : num_batches_(num_batches) {}

  void begin() { samples_ = expected_ = 0; }
  // The factor of the mean gradient of the next batch, as if the others were to be as large as the first one
  // and the window full. 0 for a batch that counts nothing.
  double add(const Batch& batch) {
    const auto size = static_cast<double>(std::max<std::int64_t>(batch.num_samples(), 1));
    if (expected_ == 0) expected_ = size * static_cast<double>(num_batches_);
    const double samples = batch.is_valid() ? size : 0;
    samples_ += samples;
    return samples / expected_;
  }
  // The factor that the sum of the gradients still lacks: 1 when it was so.
  double rest() const { return expected_ / samples_; }
  // Times the sum of the gradients, that is the sum over all samples.
  double expected() const { return expected_; }
  double num_samples() const { return samples_; }

 private:
  std::int64_t num_batches_;
  double samples_ = 0, expected_ = 0;
};

// The step of a model with one optimizer, which the trainer moves.
class AutomaticStep : public Step {
 public:
  // The context outlives the step. `capture` as OptimizerUpdate takes it.
  AutomaticStep(TrainingContext& context, std::unique_ptr<BatchGradients> gradients,
                std::unique_ptr<UpdateCapture> capture);

  void run(const Batch& batch, bool ends_window) override;
  void end_window() override;
  void end_epoch() override { gradients_->end_epoch(); }

 private:
  void accumulate(const Batch& batch, bool ends_window);
  at::Tensor gradients_of(const Batch& batch, std::int64_t before, bool ends_window);
  void update();
  void scale_gradients();
  GradientShare share() const;
  at::Tensor evaluate_again();  // the loss and gradients of the batch, for optimizers that need a closure
  void end_row(double weight);

  std::unique_ptr<BatchGradients> gradients_;
  TrainingContext& context_;
  TrainState& state_;
  OptimizerUpdate update_;
  AccumulationWindow window_;
  std::optional<GradientShards> shards_;
  const std::shared_ptr<ProcessGroup> group_of_norms_;  // nullptr: batch norm is each process's own
  const Batch* batch_ = nullptr;          // of the step under way
  std::optional<CarriedStates> carried_;  // before it, where it may be evaluated again
  std::vector<at::Tensor> losses_;        // of the window
};

}  // namespace kindling
