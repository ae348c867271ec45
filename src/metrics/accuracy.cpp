#include "kindling/metrics/accuracy.h"

#include <ATen/core/grad_mode.h>

namespace kindling {

Metric::~Metric() = default;

at::Tensor accuracy(const at::Tensor& outputs, const at::Tensor& labels) {
  const at::NoGradGuard no_grad;
  return outputs.argmax(1).eq(labels).to(at::kFloat).mean();
}

at::Tensor Accuracy::update(const at::Tensor& outputs, const at::Tensor& labels) const {
  const at::Tensor num_right = outputs.argmax(1).eq(labels).sum();
  const std::int64_t labels_per_sample = labels.numel() / std::max<std::int64_t>(outputs.size(0), 1);
  return labels_per_sample > 1 ? num_right.div(labels_per_sample) : num_right;  // pixels, tokens
}

double Accuracy::compute(std::span<const double> sums, double num_samples) const {
  return sums[0] / num_samples;
}

}  // namespace kindling
