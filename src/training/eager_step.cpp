#include "training/eager_step.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "kindling/base/error.h"
#include "kindling/optim/clip.h"

namespace kindling {
namespace {

// Of the run, 0 when its end is not known.
std::int64_t num_steps(const TrainerOptions& options, std::int64_t batches_of_epoch) {
  const std::int64_t by_epochs = options.max_epochs.value_or(0) * batches_of_epoch;
  if (!options.max_steps) return by_epochs;
  return by_epochs > 0 ? std::min(by_epochs, *options.max_steps) : *options.max_steps;
}

SchedulePoint schedule_point(const TrainerOptions& options, const Progress& progress,
                             std::int64_t batches_of_epoch) {
  const std::int64_t steps = num_steps(options, batches_of_epoch);
  if (options.schedule_interval == ScheduleInterval::step)
    return {.step = progress.global_step, .total_steps = steps};
  const std::int64_t epochs = batches_of_epoch > 0 ? (steps + batches_of_epoch - 1) / batches_of_epoch
                                                   : options.max_epochs.value_or(0);
  return {.step = progress.epoch, .total_steps = epochs};
}

}  // namespace

EagerStep::EagerStep(TrainState& state, const TrainerInfo& info, const TrainerOptions& options,
                     const Callbacks& callbacks)
    : state_(state), info_(info), options_(options), callbacks_(callbacks), guard_(options) {
  state_.log.column("train_loss");  // comes first in records
}

void EagerStep::run(const Batch& batch) {
  const at::AutoGradMode with_gradients(true);  // the caller may have switched them off
  const at::Tensor loss = gradients(batch);
  guard_.look(loss, *state_.optimizer, clip());
  update();
  guard_.mark(state_.log);
  const Progress& at = state_.progress;
  state_.log.append({.global_step = at.global_step + 1,
                     .batch = at.batch,
                     .lr = state_.optimizer->lr(),
                     .weight = static_cast<double>(batch.num_samples())});
}

at::Tensor EagerStep::gradients(const Batch& batch) {
  if (state_.optimizer) state_.optimizer->zero_grad();
  const at::Tensor loss = state_.model->training_step(batch);
  if (!state_.optimizer)
    state_.require_optimizer().zero_grad();  // what an earlier user of the model has left
  require_scalar(loss);
  loss.backward();
  state_.log.mark(state_.log.column("train_loss"), loss);
  return loss;
}

at::Tensor EagerStep::clip() {
  if (options_.gradient_clip_val == 0) return {};
  const at::Tensor norm = clip_grad_norm(state_.optimizer->gradients(), options_.gradient_clip_val);
  if (options_.log_every_n_steps > 0 && norm.defined())
    state_.log.mark(state_.log.column("grad_norm", EpochLog::Kind::step_only), norm);
  return norm;
}

void EagerStep::update() {
  Optimizer& optimizer = *state_.optimizer;
  if (options_.schedule) follow_schedule(optimizer);
  callbacks_.call(&Callback::on_before_optimizer_step, *state_.model, optimizer);
  guard_.step(optimizer);
  callbacks_.call(&Callback::on_after_optimizer_step, *state_.model, optimizer);
}

void EagerStep::follow_schedule(Optimizer& optimizer) const {
  SchedulePoint at = schedule_point(options_, state_.progress, info_.num_train_batches);
  if (state_.plateaus) at.plateaus = state_.plateaus->count();
  apply_schedule(options_.schedule, at, optimizer);
}

void EagerStep::require_scalar(const at::Tensor& loss) const {
  if (loss.defined() && loss.numel() == 1 && loss.requires_grad()) return;
  std::string found = "an undefined tensor";
  if (loss.defined())
    found = loss.numel() != 1 ? "a tensor of " + std::to_string(loss.numel()) + " elements"
                              : "a tensor without a gradient function";
  throw Error({.place = state_.model->name() + "::training_step",
               .found = found + " was returned",
               .wanted = "the loss: one number that depends on the parameters",
               .remedy = "return its mean()"});
}

}  // namespace kindling
