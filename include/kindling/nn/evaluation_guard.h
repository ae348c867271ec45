#pragma once

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <memory>

#include "kindling/base/export.h"

namespace kindling {

class ScopedModelState;

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
  std::unique_ptr<const ScopedModelState> state_;
  at::NoGradGuard no_grad_;
};

}  // namespace kindling
