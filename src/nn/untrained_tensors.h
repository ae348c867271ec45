#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "kindling/nn/module.h"

namespace kindling {

// Returns the tensors that a backward of this loss would give gradients to. Calls no operator.
std::vector<at::Tensor> leaves_of(const at::Tensor& loss);

// Finds tensors that receive gradients but are in no optimizer, such as the parameters of a layer that is not
// registered in the model, or that was registered after the optimizer was made.
class UntrainedTensors {
 public:
  // Before a backward: notes the leaves of the loss's graph that the optimizer does not have. Calls no
  // operator.
  void note(const at::Tensor& loss, const Optimizer& optimizer);
  // Logs a warning, once, of the noted tensors that still have a gradient and have not been written since: a
  // program that updates a tensor itself writes it, and the inputs of a batch are gone.
  void report(const Module& model);

 private:
  struct Leaf {
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
    std::int64_t version;
  };
  std::vector<Leaf> noted_;
  bool has_reported_ = false;
};

}  // namespace kindling
