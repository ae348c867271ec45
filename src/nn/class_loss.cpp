#include "nn/class_loss.h"

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

namespace kindling {
namespace {

// The operator returns the weight in the type of the outputs, which is exact for these. Autocast does not
// know it, and converts for the ones that contain it.
bool gives_weight(const at::Tensor& outputs) {
  const bool is_exact = outputs.scalar_type() == at::kFloat || outputs.scalar_type() == at::kDouble;
  return is_exact && !at::autocast::is_autocast_enabled(outputs.device().type());
}

at::Tensor weight_of(const at::Tensor& labels, const at::Tensor& class_weights) {
  const at::NoGradGuard no_grad;
  const at::Tensor counts = labels.ne(kIgnoredLabel);
  if (!class_weights.defined()) return counts.sum();
  const at::Tensor numbers = labels.clamp(0, class_weights.size(0) - 1).flatten();
  const at::ScalarType type = at::promote_types(class_weights.scalar_type(), at::kFloat);
  return class_weights.index_select(0, numbers).to(type).mul(counts.flatten()).sum();
}

// As at::nll_loss_nd, which does not return the weight. Outputs of three or more than four dimensions are
// brought to four.
WeightedLoss mean_nll(at::Tensor input, at::Tensor target, const at::Tensor& class_weights) {
  const std::optional<at::Tensor> weights =
      class_weights.defined() ? std::optional(class_weights) : std::nullopt;
  if (input.dim() == 2) {
    auto [loss, weight] = at::nll_loss_forward(input, target, weights, at::Reduction::Mean, kIgnoredLabel);
    return {loss, weight};
  }
  if (input.dim() != 4) {
    const std::int64_t batch = input.size(0), classes = input.size(1),
                       positions = target.numel() / std::max<std::int64_t>(batch, 1);
    input = input.contiguous().view({batch, classes, 1, positions});
    target = target.contiguous().view({batch, 1, positions});
  }
  auto [loss, weight] = at::nll_loss2d_forward(input, target, weights, at::Reduction::Mean, kIgnoredLabel);
  return {loss, weight};
}

}  // namespace

WeightedLoss cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                           const at::Tensor& class_weights) {
  if (gives_weight(logits) && logits.numel() > 0)
    return mean_nll(at::log_softmax(logits, 1, logits.scalar_type()), labels, class_weights);
  const auto weights = class_weights.defined() ? std::optional(class_weights) : std::nullopt;
  return {at::cross_entropy_loss(logits, labels, weights), weight_of(labels, class_weights)};
}

WeightedLoss nll(const at::Tensor& log_probabilities, const at::Tensor& labels) {
  if (gives_weight(log_probabilities) && log_probabilities.numel() > 0)
    return mean_nll(log_probabilities, labels, {});
  return {at::nll_loss_nd(log_probabilities, labels), weight_of(labels, {})};
}

}  // namespace kindling
