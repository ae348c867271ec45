#include "kindling/models/mlp_regressor.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "kindling/nn/lazy_linear.h"

namespace kindling {
namespace {

void add_activation(torch::nn::Sequential& net, const std::string& name) {
  if (name == "gelu")
    net->push_back(torch::nn::GELU());
  else if (name == "silu")
    net->push_back(torch::nn::SiLU());
  else if (name == "tanh")
    net->push_back(torch::nn::Tanh());
  else if (name == "sigmoid")
    net->push_back(torch::nn::Sigmoid());
  else
    net->push_back(torch::nn::ReLU());
}

}  // namespace

MlpRegressor::MlpRegressor(MlpRegressorOptions options)
    : RegressionNet(torch::nn::Sequential{torch::nn::Flatten()}, "MlpRegressor",
                    RegressorOptions{.num_targets = options.num_targets,
                                     .scale_target = options.scale_target,
                                     .ignore_missing = options.ignore_missing}) {
  validate(options, "mlp_regressor");
  for (const std::int64_t width : options.hidden) {
    net->push_back(LazyLinear(width));
    add_activation(net, options.activation);
    if (options.dropout > 0) net->push_back(torch::nn::Dropout(options.dropout));
  }
  net->push_back(LazyLinear(options.num_targets));
}

}  // namespace kindling
