#pragma once

#include <ATen/core/Tensor.h>

namespace kindling {

// The possible forms of labels for outputs [batch, classes, …]; checks only shapes and dtypes.

// A class number for each: [batch, …].
inline bool are_class_numbers(const at::Tensor& outputs, const at::Tensor& labels) {
  return labels.dim() >= 1 && outputs.dim() == labels.dim() + 1 && outputs.size(0) == labels.size(0) &&
         outputs.sizes().slice(2) == labels.sizes().slice(1);
}

// The probabilities of the classes: [batch, classes, …], floating-point.
inline bool are_class_probabilities(const at::Tensor& outputs, const at::Tensor& labels) {
  return labels.is_floating_point() && outputs.dim() >= 2 && outputs.sizes() == labels.sizes();
}

// Throws DataError for labels that are neither.
[[noreturn]] void refuse_class_labels(const char* place, const at::Tensor& outputs, const at::Tensor& labels);

}  // namespace kindling
