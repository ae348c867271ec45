#include "training/step/optimizer_update.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>

#include <algorithm>
#include <typeinfo>
#include <utility>

#include "device/host_caller.h"
#include "device/random_state.h"
#include "kindling/optim/clip.h"
#include "nn/scoped_model_state.h"
#include "optim/distinct_parameters.h"
#include "optim/fused_rule.h"
#include "optim/optimizer_access.h"
#include "tensors/real_numbers.h"
#include "tensors/state_fit.h"
#include "training/step/step_observer.h"

namespace kindling {
namespace {

// Of the whole run; 0: its end is unknown.
std::int64_t num_steps(const TrainerOptions& options, std::int64_t steps_of_epoch) {
  const std::int64_t by_epochs = options.max_epochs.value_or(0) * steps_of_epoch;
  if (!options.max_steps) return by_epochs;
  return by_epochs > 0 ? std::min(by_epochs, *options.max_steps) : *options.max_steps;
}

SchedulePoint schedule_point(const TrainerOptions& options, const TrainState& state) {
  const Progress& progress = state.progress;
  const std::int64_t window = batches_per_step(options);
  const std::int64_t steps_of_epoch = (state.num_train_batches + window - 1) / window;
  const std::int64_t steps = num_steps(options, steps_of_epoch);
  if (options.schedule_interval == ScheduleInterval::step)
    return {.step = progress.global_step, .total_steps = steps};
  const std::int64_t epochs =
      steps_of_epoch > 0 ? (steps + steps_of_epoch - 1) / steps_of_epoch : options.max_epochs.value_or(0);
  return {.step = progress.epoch, .total_steps = epochs};
}

// Copies the first tensor, because the next update changes the original.
at::Tensor either(const at::Tensor& former, const at::Tensor& next) {
  const at::NoGradGuard no_grad;
  return former.defined() ? at::maximum(former, next) : next.clone();
}

// Adds what one update has found to what the step has found so far.
void add(const std::optional<NonfiniteGuard::Flag>& latest, std::optional<NonfiniteGuard::Flag>& sum) {
  if (!latest) return;
  if (!sum) sum.emplace();
  sum->number = std::max(sum->number, latest->number);
  if (latest->on_device.defined()) sum->on_device = either(sum->on_device, latest->on_device);
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

// A sparse gradient's rows are multiplied by the rate in their own type.
bool reads_float32_on_device(const at::Tensor& parameter) {
  const at::Tensor& gradient = parameter.grad();
  return !parameter.is_cpu() && parameter.scalar_type() != at::kDouble &&
         (!gradient.defined() || !gradient.is_sparse());
}

// While it exists, a training step may run for the shapes of lazy layers only. The random state is restored
// if all weights that have been created will be drawn again: others must not depend on the same numbers as
// the step.
class Rehearsal {
 public:
  explicit Rehearsal(const StepContext& context)
      : model_(*context.state.model),
        device_(context.device()),
        lazy_(layers_without_shape(model_)),
        num_parameters_(parameters_of_other_layers()),
        random_state_(random_state(device_)),
        model_state_(model_, ScopedModelState::Extent::buffers),
        muted_(context.calls, device_) {
    for (const at::Tensor& parameter : model_.parameters())
      gradients_.emplace_back(parameter, std::exchange(parameter.mutable_grad(), {}));
  }
  ~Rehearsal() {
    bool are_drawn_again = parameters_of_other_layers() == num_parameters_;
    for (const auto& [name, layer] : lazy_)
      if (!layer->draw_in_next_forward()) are_drawn_again = false;
    if (are_drawn_again)
      log_errors("the random state could not be restored", [&] { set_random_state(device_, random_state_); });
    for (const at::Tensor& parameter : model_.parameters()) parameter.mutable_grad().reset();
    for (const auto& [parameter, gradient] : gradients_) parameter.mutable_grad() = gradient;
  }
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

 private:
  // Returns how many parameters the model has that are not those of a lazy layer.
  std::size_t parameters_of_other_layers() const {
    std::size_t count = model_.parameters().size();
    for (const auto& [name, layer] : lazy_)
      count -= dynamic_cast<const torch::nn::Module&>(*layer).parameters(/*recurse=*/false).size();
    return count;
  }

  Module& model_;
  const Device device_;
  const std::vector<std::pair<std::string, LazyLayer*>> lazy_;
  const std::size_t num_parameters_;
  const std::vector<at::Tensor> random_state_;
  const ScopedModelState model_state_;
  const MutedLog muted_;
  std::vector<std::pair<at::Tensor, at::Tensor>> gradients_;
};

}  // namespace

void create_optimizer(const StepContext& context, const Batch& batch) {
  const at::AutoGradMode with_gradients(true);  // the caller may have switched them off
  Module& model = *context.state.model;
  if (!layers_without_shape(model).empty() || model.parameters().empty()) {
    const Rehearsal rehearsal(context);
    const AutocastScope autocast(context.precision, context.device());
    const HostCaller caller(HostCaller::kTrainingStep);
    model.training_step(batch);
  }
  context.state.require_optimizer();
}

std::vector<ErrorParts> repeated_loss_errors(const Optimizer& optimizer, const TrainerOptions& options,
                                             const RepeatedLossConditions& conditions) {
  if (!optimizer.needs_closure()) return {};
  std::vector<ErrorParts> errors;
  if (conditions.reduces)
    errors.push_back(
        {.place = "optimizer",
         .found = "it evaluates the loss several times, which data-parallel training does not support",
         .wanted = "another optimizer, or a single process"});
  const bool is_on_device = !conditions.is_on_cpu;
  const std::pair<const char*, bool> is_set[] = {
      {"accumulate_grad_batches", options.accumulate_grad_batches > 1},
      {"gradient_clip_val", options.gradient_clip_val > 0},
      {"precision", Precision::named(options.precision).scales_gradients},
      {"on_nonfinite", options.on_nonfinite == "skip" && is_on_device},
      {"on_spike", options.on_spike && options.on_spike->action == "skip" && is_on_device}};
  for (const auto& [option, is_refused] : is_set)
    if (is_refused)
      errors.push_back({.place = option,
                        .found = "it is set, but the optimizer evaluates the loss of a batch several times",
                        .wanted = "the default value with such an optimizer (lbfgs)"});
  return errors;
}

DeviceRates::Scope::Scope(DeviceRates& rates, Optimizer& optimizer) : optimizer_(optimizer) {
  if (!is_fused_rule(optimizer) || !std::ranges::all_of(optimizer.parameters(), reads_float32_on_device))
    return;
  const at::NoGradGuard no_grad;
  const auto options = optimizer.parameters().front().options().dtype(at::kFloat);
  std::vector<Rate>& kept = rates.rates_;
  std::vector<OptimizerAccess::LearningRate>& groups = OptimizerAccess::rates(optimizer);
  for (std::size_t group = 0; group < groups.size(); ++group) {
    auto& [number, tensor] = groups[group];
    if (group == kept.size()) kept.push_back({at::full({}, number, options), number});
    if (tensor.defined()) continue;
    if (std::exchange(kept[group].number, number) != number) kept[group].tensor.fill_(number);
    tensor = kept[group].tensor;
    given_.push_back(group);
  }
}

DeviceRates::Scope::~Scope() {
  for (const std::size_t group : given_) OptimizerAccess::rates(optimizer_)[group].tensor.reset();
}

OptimizerUpdate::OptimizerUpdate(const StepContext& context, const Callbacks& callbacks, StopConsensus& stop,
                                 std::unique_ptr<UpdateCapture> capture)
    : context_(context),
      callbacks_(callbacks),
      capture_(std::move(capture)),
      guard_(context.options.on_nonfinite,
             context.options.on_spike && context.options.on_spike->action == "skip") {
  const bool in_tree = context.options.gradient_shards > 1;
  if (context.group() != nullptr || in_tree)
    reducer_.emplace(context.group() != nullptr ? *context.group() : alone_, stop, context.state, in_tree);
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
  Measured measured = reduce(optimizer, own, origin);
  if (context_.options.on_spike) measured.detector = &context_.state.spike_detector(name);
  const auto measure = [&] { this->measure(optimizer, name, measured); };
  if (UpdateCapture* const capture = this->capture())
    capture->measure(optimizer, tensors_read(measured), measure);
  else
    measure();
  Module& model = *context_.state.model;
  if (context_.options.schedule) follow_schedule(optimizer);
  callbacks_.call(&Callback::on_before_optimizer_step, model, optimizer);
  require_supported(optimizer);
  if (context_.group() != nullptr && context_.options.shard_optimizer_state)
    own.shard.step(*context_.group(), optimizer, [&] { step(optimizer, own, closure); });
  else
    step(optimizer, own, closure);
  callbacks_.call(&Callback::on_after_optimizer_step, model, optimizer);
}

OptimizerUpdate::Measured OptimizerUpdate::reduce(Optimizer& optimizer, OptimizerSlot& slot,
                                                  const Origin& origin) {
  guard_.set_empty(origin.share.weight.is_known_zero());
  if (!reducer_) return {.losses = origin.losses, .loss = origin.loss};
  require_supported(optimizer);
  std::optional<StepLoss> loss_sum = origin.loss;
  if (context_.options.on_spike && !loss_sum) loss_sum.emplace();  // other ranks have one
  const auto start = EpochClock::Clock::now();
  Measured measured{.global_loss =
                        reducer_->reduce(optimizer, slot.plan, origin.share, origin.losses, loss_sum)};
  context_.clock.add_exchange(EpochClock::Clock::now() - start);
  guard_.set_empty(reducer_->is_empty());
  if (context_.options.on_spike && !reducer_->is_empty()) measured.loss = reducer_->take_mean_loss();
  return measured;
}

void OptimizerUpdate::measure(Optimizer& optimizer, std::string_view name, const Measured& of) {
  if (scaler() != nullptr) scaler()->unscale(optimizer);
  if (is_watched()) context_.observer->on_gradients(optimizer);
  if (context_.options.track_grad_norm != 0) mark_gradient_norms(optimizer, slot(name).norm_columns);
  if (of.detector != nullptr) guard_.test_spike(*of.detector, of.loss);
  if (context_.options.gradient_clip_algorithm == "norm") {
    guard_.check(losses_of(of), optimizer, clip(optimizer, name), scaler());
    return;
  }
  guard_.check(losses_of(of), optimizer, {}, scaler());  // before the limit, which hides infinite numbers
  if (context_.options.gradient_clip_val > 0)
    clip_grad_value(optimizer.gradients(), context_.options.gradient_clip_val);
}

std::span<const at::Tensor> OptimizerUpdate::losses_of(const Measured& of) {
  return of.global_loss.defined() ? std::span(&of.global_loss, 1) : of.losses;
}

// Captured work depends on the addresses of these tensors.
std::vector<at::Tensor> OptimizerUpdate::tensors_read(const Measured& of) {
  const auto losses = losses_of(of);
  std::vector<at::Tensor> read(losses.begin(), losses.end());
  if (of.detector == nullptr) return read;
  for (const at::Tensor& tensor : of.detector->tensors()) read.push_back(tensor);
  if (of.loss && of.loss->on_device.defined()) read.push_back(of.loss->on_device);
  return read;
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
  std::vector<at::Tensor> numbers;
  for (std::size_t i = 0; i < names.size(); ++i) {
    require_dense(gradients[i], *names[i]);
    numbers.push_back(numbers_in_memory(gradients[i]));
  }
  const std::vector<at::Tensor> norms = at::_foreach_norm(numbers, context_.options.track_grad_norm);
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

void OptimizerUpdate::end_step() {
  guard_.mark(context_.state.log, scaler());
  if (scaler() != nullptr) adjust_scale(scaler()->found_inf());
}

void OptimizerUpdate::begin_updates() {
  skipped_.reset();
  spike_.reset();
  found_inf_.reset();
}

void OptimizerUpdate::end_update() {
  guard_.mark_diverged(context_.state.log);
  if (scaler() != nullptr) found_inf_ = either(found_inf_, scaler()->found_inf());
  add(guard_.skipped(scaler()), skipped_);
  add(guard_.spike(), spike_);
}

void OptimizerUpdate::end_updates() {
  if (spike_) NonfiniteGuard::mark_spike(context_.state.log, *spike_);
  if (skipped_)
    NonfiniteGuard::mark_skipped(context_.state.log, *skipped_);
  else if (guard_.may_skip(scaler()))
    context_.state.log.commit_sums({});  // a batch without an update is not skipped along with a later one
  if (found_inf_.defined()) adjust_scale(found_inf_);
}

void OptimizerUpdate::adjust_scale(const at::Tensor& found_inf) const {
  scaler()->adjust(found_inf);
  EpochLog& log = context_.state.log;
  log.mark(log.column(kLossScaleColumn, EpochLog::Kind::internal), scaler()->scale());
}

bool OptimizerUpdate::is_watched() const {
  return context_.observer != nullptr && context_.observer->is_watching();
}

UpdateCapture* OptimizerUpdate::capture() const {
  return context_.capture.is_captured() && !is_watched() ? capture_.get() : nullptr;
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
  SchedulePoint at = schedule_point(context_.options, context_.state);
  if (context_.state.plateaus) at.plateaus = context_.state.plateaus->count();
  apply_schedule(context_.options.schedule, at, optimizer);
}

void OptimizerUpdate::require_supported(const Optimizer& optimizer) const {
  const auto errors = repeated_loss_errors(optimizer, context_.options,
                                           {.reduces = reduces(), .is_on_cpu = context_.device().is_cpu()});
  if (!errors.empty()) throw ConfigError(errors.front());
}

}  // namespace kindling
