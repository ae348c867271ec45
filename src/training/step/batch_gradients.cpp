#include "training/step/batch_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/where.h>

#include <string>

#include "device/host_caller.h"
#include "kindling/base/error.h"
#include "nn/repeated_uses.h"

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
    state_.model->take_loss_weight();  // of a step that has thrown
    loss = state_.model->training_step(batch);
  }
  require_scalar(loss);
  if (const at::Tensor weight = state_.model->take_loss_weight(); weight.defined()) mark_weight(loss, weight);
  return loss;
}

// Replays mark it, too.
void BatchGradients::mark_weight(const at::Tensor& loss, const at::Tensor& weight) const {
  const at::NoGradGuard no_grad;
  if (weight.numel() != 1)
    throw DataError({.place = state_.model->name() + "::training_step",
                     .found = "the loss has a weight of " + std::to_string(weight.numel()) + " elements",
                     .wanted = "one number, at least 0",
                     .remedy = "return the number of labels, or the sum of their weights"});
  EpochLog& log = *context_.calls.log;
  const at::Tensor number = weight.detach().view(at::IntArrayRef());
  log.mark(log.column(kLossWeightColumn, EpochLog::Kind::internal), number);
  if (number.is_cpu()) return;
  const at::Tensor counted = at::where(number.gt(0), loss.detach().view(at::IntArrayRef()), 0);
  log.mark(log.column(kCountedLossColumn, EpochLog::Kind::internal), counted);
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

void BatchGradients::backward(const at::Tensor& loss, const LossSeed& of, const at::Tensor& weight) {
  const ActivityScope scope(&context_.clock, Activity::backward);
  watch_untrained(loss);
  if (of.skips_backward) return;
  const HostCaller caller(HostCaller::kBackward);
  if (of.weight_unit != 0) {
    const at::Tensor factor = weight.div(of.weight_unit);
    return loss.backward(state_.scaler ? state_.scaler->seed(loss, factor)
                                       : factor.to(loss.scalar_type()).view(loss.sizes()));
  }
  if (of.factor == 1 && !state_.scaler) return loss.backward();
  loss.backward(seed(loss, of.factor));
}

void BatchGradients::watch_untrained(const at::Tensor& loss) {
  const std::int64_t generation = state_.optimizer_generation(), epoch = state_.progress.epoch;
  const bool is_new_epoch = epoch != watched_epoch_ && looks_for_untrained(epoch);
  if (generation == watched_generation_ && !is_new_epoch) return;
  watched_generation_ = generation;
  watched_epoch_ = epoch;
  num_windows_ = 0;
  untrained_.note(loss, *state_.optimizer);
  if (context_.precision.has_16_bits() && !has_warned_of_uses_)
    has_warned_of_uses_ = warn_of_repeated_uses(loss, *state_.model);
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
