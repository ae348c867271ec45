#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kindling/metrics/logged_values.h"

namespace kindling {

// Labels that are ignored, as in PyTorch.
inline constexpr std::int64_t kIgnoredLabel = -100;

// Returns the tensor as float32, or wider if it is.
at::Tensor at_least_float(const at::Tensor& tensor);

// Cross-entropy of logits [batch, classes, …], or the negative log likelihood of log probabilities, with
// class numbers (int64 [batch, …], `ignored` ones do not count): the mean over the labels that count, with
// `class_weights` ([classes], may be undefined) as the weights of the mean. Bit-identical to
// at::cross_entropy_loss and at::nll_loss_nd.
WeightedLoss cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                           const at::Tensor& class_weights, std::int64_t ignored = kIgnoredLabel);
WeightedLoss nll(const at::Tensor& log_probabilities, const at::Tensor& labels,
                 const at::Tensor& class_weights, std::int64_t ignored = kIgnoredLabel);

// The same as nll() with label smoothing. Computes in float32 or wider, and needs no host wait, as PyTorch's
// does with class weights.
WeightedLoss smoothed_nll(const at::Tensor& log_probabilities, const at::Tensor& labels,
                          const at::Tensor& class_weights, std::int64_t ignored, double label_smoothing);

// Returns log p of logits as float32 or wider.
at::Tensor log_probabilities_of(const at::Tensor& logits);

// log p · (1 − p)^gamma. The gradient is finite where p rounds to 1.
at::Tensor focal_terms(const at::Tensor& log_probabilities, double gamma);

// The mean of the losses that count (bool, of their shape), 0 if none does, in float32 or wider. A loss that
// does not count is skipped, also if it is NaN, and its gradient is 0.
WeightedLoss masked_mean(const at::Tensor& losses, const at::Tensor& counts);

// A number per class, [classes] → [classes, 1, …], to be multiplied with outputs [batch, classes, …].
at::Tensor by_class(const at::Tensor& numbers, const at::Tensor& outputs);

}  // namespace kindling
