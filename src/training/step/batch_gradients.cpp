#include "training/step/batch_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>

#include <string>

#include "device/host_caller.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

// Steps after which a tensor that nobody has written counts as untrained, before the end of its epoch: a
// program may update a tensor of its own every few steps.
constexpr std::int64_t kPatience = 16;

// The epochs 0, 1, 2, 4, 8, …: a model may get layers later, and a run of many epochs must not pay for that.
bool looks_for_untrained(std::int64_t epoch) { return (epoch & (epoch - 1)) == 0; }

}  // namespace

at::Tensor EagerGradients::forward(const Batch& batch, bool begins_window) {
  const ActivityScope scope(&context_.clock, Activity::forward);
  if (begins_window && ++num_windows_ == kPatience) untrained_.report(*state_.model);
  const bool has_optimizer = state_.optimizer != nullptr;
  if (has_optimizer && begins_window) state_.optimizer->zero_grad();
  at::Tensor loss;
  {
    const AutocastScope autocast(context_.placement.precision, state_.log.device());
    const HostCaller caller(HostCaller::kTrainingStep);
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
  watch_untrained(loss);
  const HostCaller caller(HostCaller::kBackward);
  if (factor == 1 && !state_.scaler) return loss.backward();
  loss.backward(seed(loss, factor));
}

void EagerGradients::watch_untrained(const at::Tensor& loss) {
  const std::int64_t generation = state_.optimizer_generation(), epoch = state_.progress.epoch;
  const bool is_new_epoch = epoch != watched_epoch_ && looks_for_untrained(epoch);
  if (generation == watched_generation_ && !is_new_epoch) return;
  watched_generation_ = generation;
  watched_epoch_ = epoch;
  num_windows_ = 0;
  untrained_.note(loss, *state_.optimizer);
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
