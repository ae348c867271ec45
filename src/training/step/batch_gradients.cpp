#include "training/step/batch_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>

#include <string>

#include "kindling/base/error.h"

namespace kindling {

at::Tensor EagerGradients::forward(const Batch& batch, bool begins_window) {
  const ActivityScope scope(&context_.clock, Activity::forward);
  const bool has_optimizer = state_.optimizer != nullptr;
  if (has_optimizer && begins_window) state_.optimizer->zero_grad();
  at::Tensor loss;
  {
    const AutocastScope autocast(context_.placement.precision, state_.log.device());
    loss = state_.model->training_step(batch);
  }
  if (!has_optimizer)
    state_.require_optimizer().zero_grad();  // gradients left by an earlier use of the model
  require_scalar(loss);
  return loss;
}

at::Tensor EagerGradients::seed(const at::Tensor& loss, double factor) {
  const at::NoGradGuard no_grad;
  if (state_.scaler) {
    at::Tensor seed = state_.scaler->scale();
    if (factor != 1) seed = seed * factor;
    return seed.to(loss.scalar_type()).view(loss.sizes());
  }
  const bool is_known = seed_.defined() && seed_factor_ == factor && seed_.sizes() == loss.sizes() &&
                        seed_.options().type_equal(loss.options());
  if (!is_known) seed_ = at::full_like(loss, factor);
  seed_factor_ = factor;
  return seed_;
}

void EagerGradients::backward(const at::Tensor& loss, double factor) {
  const ActivityScope scope(&context_.clock, Activity::backward);
  if (factor == 1 && !state_.scaler) return loss.backward();
  loss.backward(seed(loss, factor));
}

void EagerGradients::require_scalar(const at::Tensor& loss) const {
  if (loss.defined() && loss.numel() == 1 && loss.requires_grad()) return;
  std::string found = "an undefined tensor", remedy = "return its mean()";
  if (loss.defined() && loss.numel() != 1) {
    found = "a tensor of " + std::to_string(loss.numel()) + " elements";
  } else if (loss.defined()) {
    found = "a tensor without a gradient function";
    remedy =
        "check whether all parameters are frozen, or the loss was detached or computed without gradients";
  } else {
    remedy = "return it";
  }
  throw Error({.place = state_.model->name() + "::training_step",
               .found = found + " was returned",
               .wanted = "a scalar loss that depends on the parameters",
               .remedy = remedy});
}

}  // namespace kindling
