#include "kindling/nn/regressor.h"

#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros.h>

#include <utility>
#include <vector>

#include "kindling/base/error.h"
#include "nn/weighted_losses.h"
#include "tensors/channel_statistics.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

// LibTorch would broadcast [n, 1] and [n] to [n, n], comparing every output with every label.
void require_numbers_as_labels(const std::string& model, const at::Tensor& outputs,
                               const at::Tensor& labels) {
  if (labels.is_floating_point() && outputs.sizes() == labels.sizes()) return;
  throw DataError({.place = model + "::loss",
                   .found = "the labels are " + type_text(labels),
                   .wanted = "floating-point numbers of the outputs' shape, " + type_text(outputs),
                   .remedy = std::string("convert the labels where they are made: labels.to(torch::kFloat), "
                                         "labels.unsqueeze(1)") +
                             (labels.is_floating_point() ? ""
                                                         : "; for class numbers choose a classifier, such as "
                                                           "softmax_regression")});
}

// A number of each target, [targets] → [targets, 1, …], to be combined with outputs [batch, targets, …]. A
// field may lack the dimension of a single channel.
at::Tensor of_targets(const at::Tensor& numbers, const at::Tensor& outputs) {
  return numbers.numel() == 1 ? numbers : by_class(numbers, outputs);
}

}  // namespace

Regressor::Regressor(std::string name, const RegressorOptions& options)
    : name_(std::move(name)), options_(options) {
  if (!options.scale_target) return;
  target_mean_ = register_buffer("target_mean", at::zeros({options.num_targets}, at::kFloat));
  target_std_ = register_buffer("target_std", at::ones({options.num_targets}, at::kFloat));
}

at::Tensor Regressor::unscaled(const at::Tensor& outputs) const {
  if (!scales_targets()) return outputs;
  return at::addcmul(of_targets(target_mean_, outputs), outputs, of_targets(target_std_, outputs));
}

at::Tensor Regressor::unscaled_change(const at::Tensor& outputs) const {
  return scales_targets() ? at::mul(outputs, of_targets(target_std_, outputs)) : outputs;
}

at::Tensor Regressor::loss(const at::Tensor& outputs, const at::Tensor& labels) {
  require_numbers_as_labels(name_, outputs, labels);
  const at::Tensor is_missing = options_.ignore_missing ? labels.isnan() : at::Tensor(),
                   counts = is_missing.defined() ? is_missing.logical_not() : at::Tensor(),
                   wanted = is_missing.defined() ? labels.masked_fill(is_missing, 0) : labels;
  WeightedLoss loss = counts.defined()
                          ? masked_mean(at::mse_loss(outputs, wanted, at::Reduction::None), counts)
                          : WeightedLoss{at::mse_loss(outputs, wanted), at::Tensor()};
  if (scales_targets() && at::GradMode::is_enabled()) {
    const at::Tensor squares = at::sub(outputs, wanted).div(of_targets(target_std_, outputs)).square();
    const at::Tensor scaled = counts.defined() ? masked_mean(squares, counts).loss : squares.mean();
    // The value of one, the gradient of the other.
    loss.loss = at::add(loss.loss.detach(), at::sub(scaled, scaled.detach()));
  }
  return counts.defined() ? weighted(loss) : loss.loss;
}

void Regressor::fit_target_scale(const at::Tensor& labels) {
  at::Tensor part = labels;
  fit_target_scale([&] { return std::exchange(part, at::Tensor()); });
}

void Regressor::fit_target_scale(const std::function<at::Tensor()>& next_part) {
  const std::string place = name_ + "::fit_target_scale";
  if (!scales_targets())
    throw Error({.place = place,
                 .found = "the model was made without a target scale",
                 .remedy = "set scale_target in its options"});
  const std::int64_t num_targets = target_std_.size(0);
  ChannelStatistics statistics(num_targets, options_.ignore_missing);
  for (at::Tensor labels = next_part(); labels.defined(); labels = next_part()) {
    const bool fits = labels.dim() >= 2 && (!options_.has_channels || labels.size(1) == num_targets);
    if (labels.numel() == 0 || !fits)
      throw DataError({.place = place,
                       .found = "the labels are " + type_text(labels),
                       .wanted = options_.has_channels
                                     ? "a shape of [samples, " + std::to_string(num_targets) + ", …]"
                                     : "fields without a dimension of channels, [samples, …]"});
    statistics.add(labels);
  }
  if (const auto wrong = statistics.wrong_channel())
    throw DataError(
        {.place = place,
         .found = options_.ignore_missing
                      ? "target " + std::to_string(*wrong) + " is infinite, or has no values"
                      : "a label is not finite",
         .wanted = "finite numbers",
         .remedy = options_.ignore_missing
                       ? ""
                       : "if they are missing values, set ignore_missing (model.ignore_missing)"});
  const at::NoGradGuard no_grad;
  target_mean_.copy_(statistics.mean());
  target_std_.copy_(statistics.deviation());
  changed();
}

}  // namespace kindling
