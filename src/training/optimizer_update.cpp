#include "training/optimizer_update.h"

#include <algorithm>

#include "kindling/base/error.h"
#include "kindling/optim/clip.h"

namespace kindling {
namespace {

// Of the run, 0 when its end is not known.
std::int64_t num_steps(const TrainerOptions& options, std::int64_t steps_of_epoch) {
  const std::int64_t by_epochs = options.max_epochs.value_or(0) * steps_of_epoch;
  if (!options.max_steps) return by_epochs;
  return by_epochs > 0 ? std::min(by_epochs, *options.max_steps) : *options.max_steps;
}

SchedulePoint schedule_point(const TrainerOptions& options, const Progress& progress,
                             std::int64_t batches_of_epoch) {
  const std::int64_t window = options.accumulate_grad_batches;
  const std::int64_t steps_of_epoch = (batches_of_epoch + window - 1) / window;
  const std::int64_t steps = num_steps(options, steps_of_epoch);
  if (options.schedule_interval == ScheduleInterval::step)
    return {.step = progress.global_step, .total_steps = steps};
  const std::int64_t epochs =
      steps_of_epoch > 0 ? (steps + steps_of_epoch - 1) / steps_of_epoch : options.max_epochs.value_or(0);
  return {.step = progress.epoch, .total_steps = epochs};
}

void require_one_evaluation(const Optimizer& optimizer) {
  if (!optimizer.needs_closure()) return;
  throw ConfigError({.place = "optimizer",
                     .found = "it evaluates the loss several times, each process that of its own samples",
                     .wanted = "one of the other optimizers, or one process"});
}

}  // namespace

OptimizerUpdate::OptimizerUpdate(TrainState& state, const TrainerInfo& info, const TrainerOptions& options,
                                 const Callbacks& callbacks)
    : state_(state),
      info_(info),
      options_(options),
      callbacks_(callbacks),
      guard_(options),
      norms_(options.track_grad_norm) {
  const bool in_tree = options.gradient_shards > 1;
  if (options.process_group || in_tree)
    reducer_.emplace(options.process_group ? *options.process_group : alone_, *info.stop, state, in_tree);
  if (options.process_group && options.shard_optimizer_state) shards_.emplace(*options.process_group);
}

void OptimizerUpdate::run(Optimizer& optimizer, const Origin& origin, const std::string& norm_column,
                          const Optimizer::Closure& closure) {
  std::span<const at::Tensor> losses = origin.losses;
  at::Tensor of_all;
  if (reducer_) {
    require_one_evaluation(optimizer);
    of_all = reducer_->reduce(optimizer, origin.share, losses);
    losses = {&of_all, 1};
  }
  const auto look = [&] { measure(optimizer, losses, norm_column); };
  if (RecordedUpdate* const recorded = this->recorded())
    recorded->measure(optimizer, losses, look);
  else
    look();
  if (options_.schedule) follow_schedule(optimizer);
  callbacks_.call(&Callback::on_before_optimizer_step, *state_.model, optimizer);
  require_plain_step(optimizer);
  if (shards_)
    shards_->step(optimizer, [&] { step(optimizer, closure); });
  else
    step(optimizer, closure);
  callbacks_.call(&Callback::on_after_optimizer_step, *state_.model, optimizer);
}

void OptimizerUpdate::measure(Optimizer& optimizer, std::span<const at::Tensor> losses,
                              const std::string& norm_column) {
  if (scaler() != nullptr) scaler()->unscale(optimizer);
  norms_.mark(state_.log, optimizer, *state_.model);
  guard_.look(losses, optimizer, clip(optimizer, norm_column), scaler());
}

void OptimizerUpdate::step(Optimizer& optimizer, const Optimizer::Closure& closure) {
  std::optional<DeviceRates::Scope> on_device;
  if (options_.schedule) on_device.emplace(rates_, optimizer);  // whether steps are recorded or not
  const auto step = [&] { guard_.step(optimizer, scaler(), closure); };
  if (RecordedUpdate* const recorded = this->recorded())
    recorded->step(optimizer, step);
  else
    step();
}

// As long as forward and backward are replayed, too; why they are not may show at any time.
RecordedUpdate* OptimizerUpdate::recorded() {
  const Device device = state_.log.device();
  if (device.is_cpu() || !info_.why_not_recorded.empty()) return nullptr;
  if (!recorded_) recorded_.emplace(device, state_.log);
  return &*recorded_;
}

at::Tensor OptimizerUpdate::clip(Optimizer& optimizer, const std::string& column) {
  if (options_.gradient_clip_val == 0) return {};
  const at::Tensor norm = clip_grad_norm(optimizer.gradients(), options_.gradient_clip_val);
  if (options_.log_every_n_steps > 0 && norm.defined())
    state_.log.mark(state_.log.column(column, EpochLog::Kind::step_only), norm);
  return norm;
}

void OptimizerUpdate::follow_schedule(Optimizer& optimizer) const {
  SchedulePoint at = schedule_point(options_, state_.progress, info_.num_train_batches);
  if (state_.plateaus) at.plateaus = state_.plateaus->count();
  apply_schedule(options_.schedule, at, optimizer);
}

void OptimizerUpdate::require_plain_step(const Optimizer& optimizer) const {
  if (!optimizer.needs_closure()) return;
  const char* const option = options_.accumulate_grad_batches > 1 ? "accumulate_grad_batches"
                             : options_.gradient_clip_val > 0     ? "gradient_clip_val"
                             : state_.scaler                      ? "precision"
                             : options_.on_nonfinite == "skip" && !state_.log.device().is_cpu()
                                 ? "on_nonfinite"
                                 : nullptr;
  if (option != nullptr)
    throw ConfigError({.place = option,
                       .found = "it is set, and the optimizer evaluates the loss of a batch several times",
                       .wanted = "its default with such an optimizer (lbfgs)"});
}

}  // namespace kindling
