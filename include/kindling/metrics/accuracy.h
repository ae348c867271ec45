#pragma once

#include <ATen/core/Tensor.h>

#include "kindling/base/export.h"
#include "kindling/metrics/metric.h"

namespace kindling {

// The share of samples whose largest output stands at their label: outputs [batch, classes, …], labels
// [batch, …] (class numbers), or class probabilities of the outputs' shape, whose largest counts → float32
// scalar on the same device. Not differentiable; no host wait. Throws DataError for labels of another shape.
KINDLING_API at::Tensor accuracy(const at::Tensor& outputs, const at::Tensor& labels);

// The same share over all samples of an epoch.
class KINDLING_API Accuracy : public Metric {
 public:
  at::Tensor update(const at::Tensor& outputs, const at::Tensor& labels) const override;
  double compute(std::span<const double> sums, double num_samples) const override;
};

}  // namespace kindling
