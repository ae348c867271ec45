#pragma once

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <memory>
#include <utility>
#include <vector>

namespace kindling {

// Evaluation mode without gradients while it lives, for acting and sampling between training steps; then
// every layer has its own mode back, also when something throws.
class EvaluationGuard {
 public:
  explicit EvaluationGuard(torch::nn::Module& model) : model_(model), was_training_(model.is_training()) {
    for (auto& layer : model.modules(/*include_self=*/false)) {
      const bool layer_was_training = layer->is_training();
      layers_.emplace_back(std::move(layer), layer_was_training);
    }
    model_.eval();
  }
  ~EvaluationGuard() {
    model_.train(was_training_);
    for (const auto& [layer, was_training] : layers_)  // parents come first and pass their mode on
      if (layer->is_training() != was_training) layer->train(was_training);
  }
  EvaluationGuard(const EvaluationGuard&) = delete;
  EvaluationGuard& operator=(const EvaluationGuard&) = delete;

 private:
  torch::nn::Module& model_;
  bool was_training_;
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> layers_;
  at::NoGradGuard no_grad_;
};

}  // namespace kindling
