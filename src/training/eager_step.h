#pragma once

#include <optional>
#include <vector>

#include "nn/carried_states.h"
#include "training/accumulation_window.h"
#include "training/callbacks.h"
#include "training/nonfinite_guard.h"
#include "training/step.h"
#include "training/train_state.h"
#include "training/trainer_info.h"

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
  at::Tensor clip();  // returns the norm; undefined: it is not known
  void update_parameters(const GradScaler* scaler);
  at::Tensor evaluate_again();  // the loss and gradients of the batch, for optimizers that need a closure
  void require_plain_batch() const;
  void end_row(double weight);
  void follow_schedule(Optimizer& optimizer) const;
  void require_scalar(const at::Tensor& loss) const;

  TrainState& state_;
  TrainerInfo& info_;
  const TrainerOptions& options_;
  const Callbacks& callbacks_;
  NonfiniteGuard guard_;
  AccumulationWindow window_;
  const Batch* batch_ = nullptr;          // of the step under way
  std::optional<CarriedStates> carried_;  // before it, where it may be evaluated again
  std::vector<at::Tensor> losses_;        // of the window
  at::Tensor seed_;                       // the factor of the latest loss
  double seed_factor_ = 0;
};

}  // namespace kindling
