#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/mse_loss.h>

#include <string>

#include "kindling/base/error.h"
#include "tensors/shape_text.h"

namespace kindling {

// Returns the mean squared error. Throws DataError for integer labels and for labels of another shape: [n, 1]
// and [n] would be broadcast to [n, n], comparing every output with every label. `model` names the class in
// messages.
inline at::Tensor squared_loss(const char* model, const at::Tensor& outputs, const at::Tensor& labels) {
  if (labels.is_floating_point() && outputs.sizes() == labels.sizes()) return at::mse_loss(outputs, labels);
  throw DataError({.place = std::string(model) + "::loss",
                   .found = "the labels are " + type_text(labels),
                   .wanted = "floating-point numbers of the outputs' shape, " + type_text(outputs),
                   .remedy = std::string("convert the labels where they are made: labels.to(torch::kFloat), "
                                         "labels.unsqueeze(1)") +
                             (labels.is_floating_point() ? ""
                                                         : "; for class numbers choose a classifier, such as "
                                                           "softmax_regression")});
}

}  // namespace kindling
