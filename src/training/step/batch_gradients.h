#pragma once

#include "training/batch_gradients.h"
#include "training/train_state.h"
#include "training/trainer_info.h"

namespace kindling {

// As LibTorch runs them, operator by operator.
class EagerGradients : public BatchGradients {
 public:
  // Both outlive it.
  EagerGradients(TrainState& state, TrainerInfo& info) : state_(state), info_(info) {}

  at::Tensor compute(const Batch& batch, bool begins_window, double factor) override {
    const at::Tensor loss = forward(batch, begins_window);
    backward(loss, factor);
    return loss;
  }

  at::Tensor forward(const Batch& batch, bool begins_window);
  void backward(const at::Tensor& loss, double factor);
  // What the gradient of the loss begins with, of its shape and type: the factor, and a scaler's scale.
  at::Tensor seed(const at::Tensor& loss, double factor);

 private:
  void require_scalar(const at::Tensor& loss) const;

  TrainState& state_;
  TrainerInfo& info_;
  at::Tensor seed_;  // without a scaler
  double seed_factor_ = 0;
};

}  // namespace kindling
