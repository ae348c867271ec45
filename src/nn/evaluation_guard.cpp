#include "kindling/nn/evaluation_guard.h"

#include "nn/carried_states.h"

namespace kindling {

EvaluationGuard::EvaluationGuard(torch::nn::Module& model)
    : model_(model),
      was_training_(model.is_training()),
      states_aside_(std::make_shared<CarriedStatesAside>(model)) {
  for (auto& layer : model.modules(/*include_self=*/false)) {
    const bool layer_was_training = layer->is_training();
    layers_.emplace_back(std::move(layer), layer_was_training);
  }
  model_.eval();
}

EvaluationGuard::~EvaluationGuard() {
  model_.train(was_training_);
  for (const auto& [layer, was_training] : layers_)  // parents come first and pass their mode on
    if (layer->is_training() != was_training) layer->train(was_training);
}

}  // namespace kindling
