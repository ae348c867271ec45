#include "training/step/optimizer_update.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_norm.h>

#include <algorithm>
#include <typeinfo>

#include "device/host_caller.h"
#include "kindling/base/error.h"
#include "kindling/optim/clip.h"
#include "optim/distinct_parameters.h"
#include "training/step/repeated_loss.h"

namespace kindling {
namespace {

// Of the whole run; 0: its end is unknown.
std::int64_t num_steps(const TrainerOptions& options, std::int64_t steps_of_epoch) {
  const std::int64_t by_epochs = options.max_epochs.value_or(0) * steps_of_epoch;
  if (!options.max_steps) return by_epochs;
  return by_epochs > 0 ? std::min(by_epochs, *options.max_steps) : *options.max_steps;
}

SchedulePoint schedule_point(const TrainingContext& context) {
  const TrainerOptions& options = context.options;
  const Progress& progress = context.state.progress;
  const std::int64_t window = context.batches_per_step(), batches_of_epoch = context.num_train_batches;
  const std::int64_t steps_of_epoch = (batches_of_epoch + window - 1) / window;
  const std::int64_t steps = num_steps(options, steps_of_epoch);
  if (options.schedule_interval == ScheduleInterval::step)
    return {.step = progress.global_step, .total_steps = steps};
  const std::int64_t epochs =
      steps_of_epoch > 0 ? (steps + steps_of_epoch - 1) / steps_of_epoch : options.max_epochs.value_or(0);
  return {.step = progress.epoch, .total_steps = epochs};
}

void require_dense(const at::Tensor& gradient, const std::string& column) {
  if (gradient.is_sparse())
    throw ConfigError({.place = "track_grad_norm",
                       .found = "the gradient of " + column.substr(column.find('/') + 1) + " is sparse",
                       .wanted = "dense gradients",
                       .remedy = "use an embedding with sparse = false, or set track_grad_norm = 0"});
}

// Returns the columns of the norms of an optimizer's gradients: "grad_norm/net.0.weight". An optimizer of a
// part of the model may know its parameters by other names than the model does.
std::vector<std::string> columns_of_norms(const Optimizer& optimizer, const Module& model) {
  std::map<const at::TensorImpl*, std::string> names;
  for (const auto& [name, parameter] : distinct_parameters(model))
    names[parameter.unsafeGetTensorImpl()] = name;
  std::vector<std::string> columns;
  for (std::size_t i = 0; i < optimizer.parameters().size(); ++i) {
    const auto known = names.find(optimizer.parameters()[i].unsafeGetTensorImpl());
    columns.push_back("grad_norm/" + (known == names.end() ? optimizer.names()[i] : known->second));
  }
  return columns;
}

}  // namespace

OptimizerUpdate::OptimizerUpdate(TrainingContext& context, std::unique_ptr<UpdateCapture> capture)
    : context_(context), capture_(std::move(capture)), guard_(context.options.on_nonfinite) {
  const bool in_tree = context.options.gradient_shards > 1;
  if (context.group() != nullptr || in_tree)
    reducer_.emplace(context.group() != nullptr ? *context.group() : alone_, context.stop, context.state,
                     in_tree);
}

OptimizerUpdate::OptimizerSlot& OptimizerUpdate::slot(std::string_view name) {
  if (slot_generation_ != context_.state.optimizer_generation()) {
    slots_.clear();
    slot_generation_ = context_.state.optimizer_generation();
  }
  const auto found = slots_.find(name);
  return found != slots_.end() ? found->second : slots_[std::string(name)];
}

void OptimizerUpdate::send_while_ready(const Optimizer& optimizer, GradientShare share) {
  if (reducer_) reducer_->send_while_ready(optimizer, slot({}).plan, share);
}

void OptimizerUpdate::run(Optimizer& optimizer, std::string_view name, const Origin& origin,
                          const Optimizer::Closure& closure) {
  OptimizerSlot& own = slot(name);
  std::span<const at::Tensor> losses = origin.losses;
  at::Tensor global_loss;
  if (reducer_) {
    require_supported(optimizer);
    const auto start = EpochClock::Clock::now();
    global_loss = reducer_->reduce(optimizer, own.plan, origin.share, losses);
    context_.clock.add_exchange(EpochClock::Clock::now() - start);
    losses = {&global_loss, 1};
  }
  const auto measure = [&] { this->measure(optimizer, name, losses); };
  if (UpdateCapture* const capture = this->capture())
    capture->measure(optimizer, losses, measure);
  else
    measure();
  Module& model = *context_.state.model;
  if (context_.options.schedule) follow_schedule(optimizer);
  context_.callbacks.call(&Callback::on_before_optimizer_step, model, optimizer);
  require_supported(optimizer);
  if (context_.group() != nullptr && context_.options.shard_optimizer_state)
    own.shard.step(*context_.group(), optimizer, [&] { step(optimizer, own, closure); });
  else
    step(optimizer, own, closure);
  context_.callbacks.call(&Callback::on_after_optimizer_step, model, optimizer);
}

void OptimizerUpdate::measure(Optimizer& optimizer, std::string_view name,
                              std::span<const at::Tensor> losses) {
  if (scaler() != nullptr) scaler()->unscale(optimizer);
  if (context_.options.track_grad_norm != 0) mark_gradient_norms(optimizer, slot(name).norm_columns);
  guard_.check(losses, optimizer, clip(optimizer, name), scaler());
}

// Logs the p-norms of the gradients with one operator on the device, without a wait.
void OptimizerUpdate::mark_gradient_norms(Optimizer& optimizer, std::vector<std::string>& columns) const {
  const auto gradients = optimizer.gradients();
  if (gradients.empty()) return;
  const at::NoGradGuard no_grad;
  if (columns.empty()) columns = columns_of_norms(optimizer, *context_.state.model);
  std::vector<const std::string*> names;
  for (std::size_t i = 0; i < columns.size(); ++i)
    if (optimizer.parameters()[i].grad().defined()) names.push_back(&columns[i]);
  for (std::size_t i = 0; i < names.size(); ++i) require_dense(gradients[i], *names[i]);
  const std::vector<at::Tensor> norms =
      at::_foreach_norm({gradients.data(), gradients.size()}, context_.options.track_grad_norm);
  EpochLog& log = context_.state.log;
  for (std::size_t i = 0; i < names.size(); ++i) log.mark(log.column(*names[i]), norms[i]);
}

void OptimizerUpdate::step(Optimizer& optimizer, OptimizerSlot& slot, const Optimizer::Closure& closure) {
  std::optional<DeviceRates::Scope> on_device;
  if (context_.options.schedule) on_device.emplace(slot.rates, optimizer);  // also without capture
  const HostCaller caller(HostCaller::kOptimizer, &typeid(optimizer));
  const auto step = [&] { guard_.step_if_finite(optimizer, scaler(), closure); };
  if (UpdateCapture* const capture = this->capture())
    capture->step(optimizer, step);
  else
    step();
}

UpdateCapture* OptimizerUpdate::capture() const {
  return context_.capture.is_captured() ? capture_.get() : nullptr;
}

at::Tensor OptimizerUpdate::clip(Optimizer& optimizer, std::string_view name) {
  const double limit = context_.options.gradient_clip_val;
  if (limit == 0) return {};
  const at::Tensor norm = clip_grad_norm(optimizer.gradients(), limit);
  if (context_.options.log_every_n_steps > 0 && norm.defined()) {
    const std::string column = name.empty() ? "grad_norm" : "grad_norm_" + std::string(name);
    context_.state.log.mark(context_.state.log.column(column, EpochLog::Kind::step_only), norm);
  }
  return norm;
}

void OptimizerUpdate::follow_schedule(Optimizer& optimizer) const {
  SchedulePoint at = schedule_point(context_);
  if (context_.state.plateaus) at.plateaus = context_.state.plateaus->count();
  apply_schedule(context_.options.schedule, at, optimizer);
}

void OptimizerUpdate::require_supported(const Optimizer& optimizer) const {
  const auto errors = repeated_loss_errors(optimizer, context_.options,
                                           {.reduces = reduces(), .is_on_cpu = context_.device().is_cpu()});
  if (!errors.empty()) throw ConfigError(errors.front());
}

}  // namespace kindling
