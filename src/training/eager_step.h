#pragma once

#include <optional>
#include <vector>

#include "nn/carried_states.h"
#include "training/accumulation_window.h"
#include "training/optimizer_update.h"
#include "training/step.h"

namespace kindling {

// The step as LibTorch runs it, operator by operator.
class EagerStep : public Step {
 public:
  // All references outlive the step.
  EagerStep(TrainState& state, TrainerInfo& info, const TrainerOptions& options, const Callbacks& callbacks);

  // Throws Error for a loss that is no scalar.
  void run(const Batch& batch, bool ends_window) override;
  void end_window() override;

 private:
  void accumulate(const Batch& batch);
  void update();
  at::Tensor forward(const Batch& batch, bool begins_window);  // returns the loss
  void backward(const at::Tensor& loss, double factor);
  void scale_gradients();
  at::Tensor evaluate_again();  // the loss and gradients of the batch, for optimizers that need a closure
  void end_row(double weight);
  void require_scalar(const at::Tensor& loss) const;

  TrainState& state_;
  TrainerInfo& info_;
  OptimizerUpdate update_;
  AccumulationWindow window_;
  const Batch* batch_ = nullptr;          // of the step under way
  std::optional<CarriedStates> carried_;  // before it, where it may be evaluated again
  std::vector<at::Tensor> losses_;        // of the window
  at::Tensor seed_;                       // the factor of the latest loss
  double seed_factor_ = 0;
};

}  // namespace kindling
