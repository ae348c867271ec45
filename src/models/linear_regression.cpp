#include "kindling/models/linear_regression.h"

#include "kindling/nn/lazy_linear.h"
#include "models/squared_loss.h"

namespace kindling {

LinearRegression::LinearRegression(LinearRegressionOptions options)
    : SequentialNet(torch::nn::Sequential{LazyLinear(options.num_outputs)}) {}

at::Tensor LinearRegression::loss(const at::Tensor& outputs, const at::Tensor& labels) {
  return squared_loss("LinearRegression", outputs, labels);
}

}  // namespace kindling
