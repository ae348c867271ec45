#pragma once

#include "kindling/optim/optimizer.h"

namespace kindling {

// Gives captured updates access to an optimizer's state and to its learning rates, which may be tensors on
// the device. The only access besides the optimizer's public functions.
class OptimizerAccess {
 public:
  using LearningRate = Optimizer::LearningRate;

  static std::vector<LearningRate>& rates(Optimizer& optimizer) { return optimizer.rates_; }  // of the groups
  // Calls `visit` with each tensor of the state, undefined ones included.
  template <class Visit>
  static void for_each_state(const Optimizer& optimizer, const Visit& visit) {
    for (const auto& state : optimizer.states_)
      for (const at::Tensor& tensor : state.tensors) visit(tensor);
  }
};

}  // namespace kindling
