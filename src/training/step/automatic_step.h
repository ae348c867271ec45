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
#include "training/step/gradient_recheck.h"
#include "training/step/optimizer_update.h"
#include "training/step/step.h"

namespace kindling {

// Weights the batches of one optimizer step so that its gradient is that of the mean over all labels that
// count, however they are distributed over the batches. The weight of a batch is that of its loss, or the
// number of its samples.
class AccumulationWindow {
 public:
  // `num_batches`: batches of a full window. `is_alone`: its only batch is the whole step, so its gradient is
  // that of its loss.
  AccumulationWindow(std::int64_t num_batches, bool is_alone)
      : num_batches_(num_batches), is_alone_(is_alone) {}

  void begin() {
    expected_ = 0;
    total_ = {};
    loss_sum_.reset();
  }
  // The next batch: assumes that all batches have as many samples as the first one, and the window will be
  // full.
  void expect(const Batch& batch) {
    if (expected_ == 0) expected_ = size_of(batch) * static_cast<double>(num_batches_);
  }
  // Returns what to multiply the gradient of its loss by; times `unit`, which is expected() by default.
  LossSeed seed(const Batch& batch, const at::Tensor& weight, double unit) const;
  void add(const Batch& batch, const at::Tensor& weight);
  // The same for its loss, for the spike test. On a device, `counted` is the loss if it has a weight above 0,
  // else 0.
  void add_loss(const Batch& batch, const at::Tensor& weight, const at::Tensor& loss,
                const at::Tensor& counted);
  // Corrects the sum of the gradients, so that it is that of the mean.
  void complete(Optimizer& optimizer) const;
  // Times the sum of the gradients, gives the sum over all labels.
  double expected() const { return expected_; }
  const TotalWeight& total() const { return total_; }
  // The sum of the losses times their weights, and their mean; nothing if the host knows that none counted.
  const std::optional<StepLoss>& loss_sum() const { return loss_sum_; }
  std::optional<StepLoss> mean_loss() const;

 private:
  static double size_of(const Batch& batch) {
    return static_cast<double>(std::max<std::int64_t>(batch.num_samples(), 1));
  }

  std::int64_t num_batches_;
  bool is_alone_;
  double expected_ = 0;
  TotalWeight total_;
  std::optional<StepLoss> loss_sum_;  // of a lone batch its loss
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
  // Computes the gradients of the batch; twice if it is checked, which begins a window.
  at::Tensor compute(const Batch& batch, bool begins_window, bool is_checked, const SeedOf& seed_of);
  void update();
  void note_loss(const Batch& batch, const at::Tensor& loss, const at::Tensor& weight);
  at::Tensor counted_loss();
  GradientShards::Sums sums_of_shard(const Batch& batch, const at::Tensor& loss);
  GradientShare share() const;
  std::optional<StepLoss> tested_loss() const;
  bool tests_spikes() const { return context_.options.on_spike.has_value(); }
  at::Tensor evaluate_again();  // the loss and gradients of the batch, for optimizers that need a closure
  void end_row(double weight);

  const StepContext context_;
  TrainState& state_;
  const std::unique_ptr<BatchGradients> gradients_;
  const std::unique_ptr<OptimizerUpdate> update_;
  AccumulationWindow window_;
  TotalWeight total_;                 // of the window, when it is complete
  std::optional<StepLoss> loss_sum_;  // the same, of shards
  std::optional<GradientShards> shards_;
  std::optional<GradientRecheck> recheck_;
  const std::shared_ptr<ProcessGroup>
      group_of_norms_;                    // nullptr: each rank has its own batch norm statistics
  bool has_run_ = false;                  // at least once
  const Batch* batch_ = nullptr;          // of the running step
  std::optional<CarriedStates> carried_;  // from before the step, if the loss may be evaluated again
  std::vector<at::Tensor> losses_;        // of the window, those that must be finite
};

}  // namespace kindling
