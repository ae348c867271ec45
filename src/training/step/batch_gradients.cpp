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

at::Tensor BatchGradients::forward(const Batch& batch, bool begins_window) {
  const ActivityScope scope(&context_.clock, Activity::forward);
  if (begins_window && ++num_windows_ == kPatience) untrained_.report(*state_.model);
  if (begins_window) state_.optimizer->zero_grad();
  at::Tensor loss;
  {
    const AutocastScope autocast(context_.precision, state_.log.device());
    const HostCaller caller(HostCaller::kTrainingStep);
    loss = state_.model->training_step(batch);
  }
  require_scalar(loss);
  return loss;
}

at::Tensor BatchGradients::seed(const at::Tensor& loss, double factor) {
  const at::NoGradGuard no_grad;
  if (state_.scaler) return state_.scaler->seed(loss, factor);
  const bool is_known = seed_.defined() && seed_factor_ == factor && seed_.sizes() == loss.sizes() &&
                        seed_.options().type_equal(loss.options());
  if (!is_known) seed_ = at::full_like(loss, factor);
  seed_factor_ = factor;
  return seed_;
}

void BatchGradients::backward(const at::Tensor& loss, double factor) {
  const ActivityScope scope(&context_.clock, Activity::backward);
  watch_untrained(loss);
  const HostCaller caller(HostCaller::kBackward);
  if (factor == 1 && !state_.scaler) return loss.backward();
  loss.backward(seed(loss, factor));
}

void BatchGradients::watch_untrained(const at::Tensor& loss) {
  const std::int64_t generation = state_.optimizer_generation(), epoch = state_.progress.epoch;
  const bool is_new_epoch = epoch != watched_epoch_ && looks_for_untrained(epoch);
  if (generation == watched_generation_ && !is_new_epoch) return;
  watched_generation_ = generation;
  watched_epoch_ = epoch;
  num_windows_ = 0;
  untrained_.note(loss, *state_.optimizer);
}

void BatchGradients::require_scalar(const at::Tensor& loss) const {
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
