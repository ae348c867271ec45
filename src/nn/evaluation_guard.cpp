#include "kindling/nn/evaluation_guard.h"

#include "nn/scoped_model_state.h"

namespace kindling {

EvaluationGuard::EvaluationGuard(torch::nn::Module& model)
    : state_(std::make_unique<const ScopedModelState>(model, ScopedModelState::Extent::modes,
                                                      ScopedModelState::HiddenStates::of_evaluation)) {
  model.eval();
}

EvaluationGuard::~EvaluationGuard() = default;

}  // namespace kindling
