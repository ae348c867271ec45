#pragma once

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <memory>

#include "kindling/base/export.h"

namespace kindling {

class ScopedModelState;

// Switches a model to evaluation mode without gradients for its lifetime, to act and sample between training
// steps. Its destructor, also after an exception, restores the mode and the hidden state of every layer.
class KINDLING_API EvaluationGuard {
 public:
  // `model` must outlive the guard.
  explicit EvaluationGuard(torch::nn::Module& model);
  ~EvaluationGuard();
  EvaluationGuard(const EvaluationGuard&) = delete;
  EvaluationGuard& operator=(const EvaluationGuard&) = delete;

 private:
  std::unique_ptr<const ScopedModelState> state_;
  at::NoGradGuard no_grad_;
};

}  // namespace kindling
