#pragma once

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <memory>
#include <utility>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// Evaluation mode without gradients while it lives, for acting and sampling between training steps; then
// every layer has its own mode and the hidden state that it carries back, also when something throws.
class KINDLING_API EvaluationGuard {
 public:
  // `model` outlives the guard.
  explicit EvaluationGuard(torch::nn::Module& model);
  ~EvaluationGuard();
  EvaluationGuard(const EvaluationGuard&) = delete;
  EvaluationGuard& operator=(const EvaluationGuard&) = delete;

 private:
  torch::nn::Module& model_;
  bool was_training_;
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> layers_;
  std::shared_ptr<const void> states_aside_;  // those that are carried from batch to batch
  at::NoGradGuard no_grad_;
};

}  // namespace kindling
