#pragma once

#include <ATen/core/Tensor.h>

#include "kindling/metrics/logged_values.h"

namespace kindling {

// Labels that are ignored, as in PyTorch.
inline constexpr std::int64_t kIgnoredLabel = -100;

// Cross-entropy of logits [batch, classes, …], or the negative log likelihood of log probabilities, with
// class numbers (int64 [batch, …], kIgnoredLabel: ignored): the mean over the labels that count, with
// `class_weights`
// ([classes], may be undefined) as the weights of the mean. Bit-identical to at::cross_entropy_loss and
// at::nll_loss_nd.
WeightedLoss cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                           const at::Tensor& class_weights);
WeightedLoss nll(const at::Tensor& log_probabilities, const at::Tensor& labels);

}  // namespace kindling
