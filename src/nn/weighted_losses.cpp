#include "nn/weighted_losses.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nll_loss2d_forward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/nll_loss_nd.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

namespace kindling {
namespace {

// The operator returns the weight in the type of the outputs, which is exact for these. Autocast does not
// know it, and converts for the ones that contain it.
bool gives_weight(const at::Tensor& outputs) {
  const bool is_exact = outputs.scalar_type() == at::kFloat || outputs.scalar_type() == at::kDouble;
  return is_exact && !at::autocast::is_autocast_enabled(outputs.device().type());
}

at::Tensor weight_of(const at::Tensor& labels, const at::Tensor& class_weights, std::int64_t ignored) {
  const at::NoGradGuard no_grad;
  const at::Tensor counts = labels.ne(ignored);
  if (!class_weights.defined()) return counts.sum();
  const at::Tensor numbers = labels.clamp(0, class_weights.size(0) - 1).flatten();
  const at::ScalarType type = at::promote_types(class_weights.scalar_type(), at::kFloat);
  return class_weights.index_select(0, numbers).to(type).mul(counts.flatten()).sum();
}

std::optional<at::Tensor> optional_of(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

// As at::nll_loss_nd, which does not return the weight. Outputs of three or more than four dimensions are
// brought to four.
WeightedLoss mean_nll(at::Tensor input, at::Tensor target, const at::Tensor& class_weights,
                      std::int64_t ignored) {
  const std::optional<at::Tensor> weights = optional_of(class_weights);
  if (input.dim() == 2) {
    auto [loss, weight] = at::nll_loss_forward(input, target, weights, at::Reduction::Mean, ignored);
    return {loss, weight};
  }
  if (input.dim() != 4) {
    const std::int64_t batch = input.size(0), classes = input.size(1),
                       positions = target.numel() / std::max<std::int64_t>(batch, 1);
    input = input.contiguous().view({batch, classes, 1, positions});
    target = target.contiguous().view({batch, 1, positions});
  }
  auto [loss, weight] = at::nll_loss2d_forward(input, target, weights, at::Reduction::Mean, ignored);
  return {loss, weight};
}

}  // namespace

at::Tensor at_least_float(const at::Tensor& tensor) {
  return tensor.to(at::promote_types(tensor.scalar_type(), at::kFloat));
}

WeightedLoss cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                           const at::Tensor& class_weights, std::int64_t ignored) {
  if (gives_weight(logits) && logits.numel() > 0)
    return mean_nll(at::log_softmax(logits, 1, logits.scalar_type()), labels, class_weights, ignored);
  return {at::cross_entropy_loss(logits, labels, optional_of(class_weights), at::Reduction::Mean, ignored),
          weight_of(labels, class_weights, ignored)};
}

WeightedLoss nll(const at::Tensor& log_probabilities, const at::Tensor& labels,
                 const at::Tensor& class_weights, std::int64_t ignored) {
  if (gives_weight(log_probabilities) && log_probabilities.numel() > 0)
    return mean_nll(log_probabilities, labels, class_weights, ignored);
  return {
      at::nll_loss_nd(log_probabilities, labels, optional_of(class_weights), at::Reduction::Mean, ignored),
      weight_of(labels, class_weights, ignored)};
}

WeightedLoss smoothed_nll(const at::Tensor& log_probabilities, const at::Tensor& labels,
                          const at::Tensor& class_weights, std::int64_t ignored, double label_smoothing) {
  const at::Tensor terms = at_least_float(log_probabilities);
  const at::Tensor weights = class_weights.defined() ? class_weights.to(terms.scalar_type()) : class_weights;
  const WeightedLoss by_label = nll(terms, labels, weights, ignored);
  if (label_smoothing == 0) return by_label;
  const at::Tensor of_all = (weights.defined() ? terms * by_class(weights, terms) : terms).sum(1).neg();
  const at::Tensor spread = of_all.masked_fill(labels.eq(ignored), 0).sum() / by_label.weight;
  const auto num_classes = static_cast<double>(terms.size(1));
  return {spread * (label_smoothing / num_classes) + by_label.loss * (1 - label_smoothing), by_label.weight};
}

at::Tensor log_probabilities_of(const at::Tensor& logits) {
  return at::log_softmax(logits, 1, at::promote_types(logits.scalar_type(), at::kFloat));
}

at::Tensor focal_terms(const at::Tensor& log_probabilities, double gamma) {
  constexpr double kLeast = 1e-30;  // the derivative of a power below 1 is infinite at 0
  constexpr double kMost = 1e30;    // a class that is excluded by a logit of -inf has no gradient
  const at::Tensor terms = at_least_float(log_probabilities).clamp_min(-kMost);
  return terms * terms.expm1().neg().clamp_min(kLeast).pow(gamma);
}

WeightedLoss masked_mean(const at::Tensor& losses, const at::Tensor& counts) {
  const at::Tensor number = counts.sum();
  const at::Tensor sum = at_least_float(losses).masked_fill(counts.logical_not(), 0).sum();
  return {sum / number.clamp_min(1), number};
}

at::Tensor by_class(const at::Tensor& numbers, const at::Tensor& outputs) {
  if (outputs.dim() <= 2) return numbers;
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(outputs.dim() - 1), 1);
  sizes[0] = numbers.size(0);
  return numbers.view(sizes);
}

}  // namespace kindling
