#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>

#include "kindling/nn/class_loss.h"

namespace kindling {

// The outputs of a classifier are logits [batch, classes, …]; [batch] is one class.
inline at::Tensor class_logits(const at::Tensor& outputs) {
  return outputs.dim() < 2 ? outputs.unsqueeze(1) : outputs;
}

// Returns the class with the largest output, int64 [batch, …]; the first of equal ones.
inline at::Tensor predicted_classes(const at::Tensor& outputs) { return class_logits(outputs).argmax(1); }

// The same, with -1 where an output is NaN, so that no class is the largest.
inline at::Tensor classes_without_nan(const at::Tensor& outputs) {
  return predicted_classes(outputs).masked_fill_(class_logits(outputs).isnan().any(1), -1);
}

// Returns the softmax over the classes, in float32 for outputs of a smaller dtype.
inline at::Tensor class_probabilities(const at::Tensor& outputs) {
  const at::Tensor logits = class_logits(outputs);
  return logits.to(at::promote_types(logits.scalar_type(), at::kFloat)).softmax(1);
}

// True for a model with a yes or no of each class: its probabilities and labels are as many as its outputs.
inline bool has_several_labels(const torch::nn::Module& model) {
  const auto* const of_classes = dynamic_cast<const ClassLossModel*>(&model);
  return of_classes != nullptr && of_classes->loss_options().multi_label;
}

// The probabilities and labels of a classifier's outputs; labels are int64, -1 where an output is NaN.
inline at::Tensor probabilities_of(const torch::nn::Module& model, const at::Tensor& outputs) {
  return has_several_labels(model)
             ? outputs.to(at::promote_types(outputs.scalar_type(), at::kFloat)).sigmoid()
             : class_probabilities(outputs);
}
inline at::Tensor labels_of(const torch::nn::Module& model, const at::Tensor& outputs) {
  if (!has_several_labels(model)) return classes_without_nan(outputs);
  return outputs.gt(0).to(at::kLong).masked_fill_(outputs.isnan(), -1);
}

}  // namespace kindling
