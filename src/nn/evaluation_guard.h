#pragma once

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

namespace kindling {

// Evaluation mode without gradients; gives the model its mode back, also when something throws.
class EvaluationGuard {
 public:
  explicit EvaluationGuard(torch::nn::Module& model) : model_(model), was_training_(model.is_training()) {
    model_.eval();
  }
  ~EvaluationGuard() { model_.train(was_training_); }
  EvaluationGuard(const EvaluationGuard&) = delete;
  EvaluationGuard& operator=(const EvaluationGuard&) = delete;

 private:
  torch::nn::Module& model_;
  bool was_training_;
  at::NoGradGuard no_grad_;
};

}  // namespace kindling
