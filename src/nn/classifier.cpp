#include "kindling/nn/classifier.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/zeros.h>

#include "kindling/metrics/accuracy.h"
#include "metrics/class_labels.h"

namespace kindling {

Classifier::Classifier() { add_metric("acc", std::make_shared<Accuracy>()); }

Classifier::~Classifier() = default;

at::Tensor Classifier::loss(const at::Tensor& outputs, const at::Tensor& labels) {
  const bool by_number = labels.scalar_type() == at::kLong && are_class_numbers(outputs, labels);
  if (!by_number && !are_class_probabilities(outputs, labels))
    refuse_class_labels("Classifier::loss", outputs, labels);
  return at::cross_entropy_loss(outputs, labels);
}

at::Tensor Classifier::accuracy(const at::Tensor& outputs, const at::Tensor& labels) const {
  return kindling::accuracy(outputs, labels);
}

std::vector<LayerRow> Classifier::layer_summary(at::IntArrayRef input_shape) {
  const auto own = parameters();
  const Device device = own.empty() || !own.front().defined() ? trainer().device() : own.front().device();
  return kindling::layer_summary(*this, Batch{at::zeros(input_shape, at::device(device))});
}

}  // namespace kindling
