#include "kindling/nn/regression_net.h"

#include <utility>

namespace kindling {

RegressionNet::RegressionNet(const torch::nn::Sequential& layers, std::string name,
                             const RegressorOptions& options)
    : SequentialNet(layers, std::move(name), options) {}

at::Tensor RegressionNet::forward(const at::Tensor& inputs) {
  return unscaled(SequentialNet::forward(inputs));
}

}  // namespace kindling
