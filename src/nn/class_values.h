#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

namespace kindling {

// The outputs of a classifier are logits [batch, classes, …]; [batch] is one class.
inline at::Tensor class_logits(const at::Tensor& outputs) {
  return outputs.dim() < 2 ? outputs.unsqueeze(1) : outputs;
}

// Returns the class with the largest output, int64 [batch, …]; the first of equal ones.
inline at::Tensor predicted_classes(const at::Tensor& outputs) { return class_logits(outputs).argmax(1); }

// Returns the softmax over the classes, in float32 for outputs of a smaller dtype.
inline at::Tensor class_probabilities(const at::Tensor& outputs) {
  const at::Tensor logits = class_logits(outputs);
  return logits.to(at::promote_types(logits.scalar_type(), at::kFloat)).softmax(1);
}

}  // namespace kindling
