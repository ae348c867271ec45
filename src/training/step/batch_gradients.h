#pragma once

#include <ATen/core/Tensor.h>

#include "kindling/tensors/batch.h"
#include "nn/untrained_tensors.h"
#include "training/step/step.h"

namespace kindling {

// Computes the forward and backward of a batch as LibTorch runs them, operator by operator. A derived class
// may replay them instead.
class BatchGradients {
 public:
  explicit BatchGradients(const StepContext& context) : context_(context), state_(context.state) {}
  virtual ~BatchGradients() = default;
  // Adds the gradients of the batch's loss, times `factor`, to those of the parameters (none at the start of
  // a window) and returns the loss. The model's logged values are marked in the run's log. The loss and the
  // marks are valid until the next call. Throws Error for a loss that is not a scalar.
  virtual at::Tensor compute(const Batch& batch, bool begins_window, double factor) {
    const at::Tensor loss = forward(batch, begins_window);
    backward(loss, factor);
    return loss;
  }
  // Call it when no batch follows for now.
  virtual void end_epoch() { untrained_.report(*state_.model); }

 protected:
  // The model has other layers now: looks again for gradients that no optimizer uses.
  void model_changed() { watched_generation_ = -1; }
  at::Tensor forward(const Batch& batch, bool begins_window);
  void backward(const at::Tensor& loss, double factor);
  // Returns the gradient of the loss that backward starts from, of its shape and type: the factor times a
  // scaler's scale.
  at::Tensor seed(const at::Tensor& loss, double factor);

  const StepContext context_;
  TrainState& state_;

 private:
  void require_scalar(const at::Tensor& loss) const;
  void watch_untrained(const at::Tensor& loss);

  at::Tensor seed_;  // used without a scaler
  double seed_factor_ = 0;
  UntrainedTensors untrained_;
  std::int64_t watched_generation_ = -1, watched_epoch_ = -1;  // when the tensors were noted last
  std::int64_t num_windows_ = 0;                               // since then
};

}  // namespace kindling
