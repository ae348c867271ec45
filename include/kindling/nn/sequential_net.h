#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <utility>

#include "kindling/base/export.h"

namespace kindling {

// A model that is a single chain of layers, `net`. `Model` is Module or Classifier:
//
//   struct Net : SequentialNet<Classifier> {
//     Net() : SequentialNet(torch::nn::Sequential(torch::nn::Flatten(), LazyLinear(10))) {}
//   };
template <class Model>
class KINDLING_API SequentialNet : public Model {
 public:
  at::Tensor forward(const at::Tensor& inputs) override { return net->forward(inputs); }

  torch::nn::Sequential net;

 protected:
  // Further arguments are those of Model.
  template <class... Arguments>
  explicit SequentialNet(const torch::nn::Sequential& layers, Arguments&&... arguments)
      : Model(std::forward<Arguments>(arguments)...), net(this->register_module("net", layers)) {}
};

}  // namespace kindling
