#include "kindling/nn/linear_regression.h"

#include <ATen/ops/mse_loss.h>

#include "kindling/base/error.h"
#include "kindling/nn/lazy_linear.h"
#include "tensors/shape_text.h"

namespace kindling {

LinearRegression::LinearRegression(LinearRegressionOptions options)
    : SequentialNet(torch::nn::Sequential{LazyLinear(options.num_outputs)}) {}

namespace {

// Shapes [n, 1] and [n] would be broadcast to [n, n], and every output compared with every label.
[[noreturn]] void refuse_labels(const at::Tensor& outputs, const at::Tensor& labels) {
  throw DataError({.place = "LinearRegression::loss",
                   .found = "the labels have the shape " + shape_text(labels),
                   .wanted = "that of the outputs, " + shape_text(outputs),
                   .remedy = "reshape the labels where they are made, such as labels.unsqueeze(1)"});
}

}  // namespace

at::Tensor LinearRegression::loss(const at::Tensor& outputs, const at::Tensor& labels) {
  if (outputs.sizes() != labels.sizes()) refuse_labels(outputs, labels);
  return at::mse_loss(outputs, labels);
}

}  // namespace kindling
