#include "kindling/models/mlp.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include "kindling/nn/lazy_linear.h"

namespace kindling {

Mlp::Mlp(MlpOptions options) : SequentialNet(torch::nn::Sequential{torch::nn::Flatten()}) {
  validate(options, "mlp");
  for (const std::int64_t width : options.hidden) {
    net->push_back(LazyLinear(width));
    net->push_back(torch::nn::ReLU());
  }
  net->push_back(LazyLinear(options.num_classes));
}

}  // namespace kindling
