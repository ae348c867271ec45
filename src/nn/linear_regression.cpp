#include "kindling/nn/linear_regression.h"

#include <ATen/ops/mse_loss.h>

#include "kindling/nn/lazy_linear.h"

namespace kindling {

LinearRegression::LinearRegression(LinearRegressionOptions options)
    : net(register_module("net", torch::nn::Sequential{LazyLinear(options.num_outputs)})) {}

at::Tensor LinearRegression::forward(const at::Tensor& inputs) { return net->forward(inputs); }

at::Tensor LinearRegression::loss(const at::Tensor& outputs, const at::Tensor& labels) {
  return at::mse_loss(outputs, labels);
}

}  // namespace kindling
