#include "kindling/nn/regression_net.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "kindling/base/error.h"
#include "nn/squared_loss.h"

namespace kindling {

RegressionNet::RegressionNet(const torch::nn::Sequential& layers, std::string name, std::int64_t num_targets,
                             bool scale_target)
    : SequentialNet(layers), name_(std::move(name)) {
  if (!scale_target) return;
  target_mean_ = register_buffer("target_mean", at::zeros({num_targets}, at::kFloat));
  target_std_ = register_buffer("target_std", at::ones({num_targets}, at::kFloat));
}

at::Tensor RegressionNet::forward(const at::Tensor& inputs) {
  const at::Tensor outputs = SequentialNet::forward(inputs);
  return scales_targets() ? at::addcmul(target_mean_, outputs, target_std_) : outputs;
}

at::Tensor RegressionNet::loss(const at::Tensor& outputs, const at::Tensor& labels) {
  at::Tensor loss = squared_loss(name_.c_str(), outputs, labels);
  if (!scales_targets() || !at::GradMode::is_enabled()) return loss;
  const at::Tensor scaled = at::sub(outputs, labels).div(target_std_).square().mean();
  // The value of one, the gradient of the other.
  return at::add(loss.detach(), at::sub(scaled, scaled.detach()));
}

void RegressionNet::fit_target_scale(const at::Tensor& labels) {
  if (!scales_targets())
    throw Error({.place = name_ + "::fit_target_scale",
                 .found = "the model was made without a target scale",
                 .remedy = "set scale_target in its options"});
  const at::NoGradGuard no_grad;
  if (labels.dim() != 2 || labels.size(1) != target_std_.size(0) || labels.size(0) == 0)
    throw DataError({.place = name_ + "::fit_target_scale",
                     .found = "the labels are " + type_text(labels),
                     .wanted = "a shape of [samples, " + std::to_string(target_std_.size(0)) + "]"});
  const at::Tensor values = labels.to(at::kDouble);
  if (!at::isfinite(values).all().item<bool>())
    throw DataError({.place = name_ + "::fit_target_scale",
                     .found = "a label is not finite",
                     .wanted = "finite numbers"});
  const at::Tensor mean = values.mean(0), deviation = values.std(0, /*unbiased=*/false);
  target_mean_.copy_(mean);
  target_std_.copy_(at::where(values.amax(0).eq(values.amin(0)), 1., deviation));
  changed();
}

}  // namespace kindling
