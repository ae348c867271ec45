#include "kindling/models/linear_regression.h"

#include <ATen/ops/mse_loss.h>

#include "kindling/base/error.h"
#include "kindling/nn/lazy_linear.h"
#include "tensors/shape_text.h"

namespace kindling {

LinearRegression::LinearRegression(LinearRegressionOptions options)
    : SequentialNet(torch::nn::Sequential{LazyLinear(options.num_outputs)}) {}

namespace {

// Shapes [n, 1] and [n] would be broadcast to [n, n], comparing every output with every label.
[[noreturn]] void refuse_labels(const at::Tensor& outputs, const at::Tensor& labels) {
  const bool are_classes = !labels.is_floating_point();
  throw DataError({.place = "LinearRegression::loss",
                   .found = "the labels are " + type_text(labels),
                   .wanted = "floating-point numbers of the outputs' shape, " + type_text(outputs),
                   .remedy = std::string("convert the labels where they are made: labels.to(torch::kFloat), "
                                         "labels.unsqueeze(1)") +
                             (are_classes ? "; for class numbers choose a classifier, such as "
                                            "softmax_regression"
                                          : "")});
}

}  // namespace

at::Tensor LinearRegression::loss(const at::Tensor& outputs, const at::Tensor& labels) {
  if (!labels.is_floating_point() || outputs.sizes() != labels.sizes()) refuse_labels(outputs, labels);
  return at::mse_loss(outputs, labels);
}

}  // namespace kindling
