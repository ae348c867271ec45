#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "nn/carried_states.h"
#include "training/accumulation_window.h"
#include "training/batch_gradients.h"
#include "training/batch_norm_of_all.h"
#include "training/gradient_shards.h"
#include "training/optimizer_update.h"
#include "training/step.h"

namespace kindling {

// The step of a model with one optimizer, which the trainer moves.
class AutomaticStep : public Step {
 public:
  // All references outlive the step.
  AutomaticStep(std::unique_ptr<BatchGradients> gradients, TrainState& state, TrainerInfo& info,
                const TrainerOptions& options, const Callbacks& callbacks);

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
  TrainState& state_;
  TrainerInfo& info_;
  OptimizerUpdate update_;
  AccumulationWindow window_;
  std::optional<GradientShards> shards_;
  const std::shared_ptr<ProcessGroup> group_of_norms_;  // nullptr: batch norm is each process's own
  const Batch* batch_ = nullptr;          // of the step under way
  std::optional<CarriedStates> carried_;  // before it, where it may be evaluated again
  std::vector<at::Tensor> losses_;        // of the window
};

}  // namespace kindling
