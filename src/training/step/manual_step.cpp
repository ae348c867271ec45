#include "training/step/manual_step.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/host_caller.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "nn/named_optimizers.h"
#include "nn/repeated_uses.h"
#include "tensors/host_number.h"
#include "training/parallel/sync_batch_norm.h"

namespace kindling {
namespace {

void require_one_number(const at::Tensor& number, const std::string& place, const char* wanted) {
  if (number.defined() && number.numel() == 1) return;
  throw Error({.place = place,
               .found = number.defined() ? "a tensor of " + std::to_string(number.numel()) + " elements"
                                         : "an undefined tensor",
               .wanted = wanted});
}

[[noreturn]] void refuse_without_gradients(const Optimizer& optimizer, const std::string& place) {
  const auto learns = [](const at::Tensor& parameter) { return parameter.requires_grad(); };
  if (std::ranges::none_of(optimizer.parameters(), learns))
    throw Error({.place = place,
                 .found = "all parameters of this optimizer are frozen",
                 .remedy = "skip its updates while they are frozen"});
  throw Error({.place = place,
               .found = "the loss does not depend on any parameter of this optimizer",
               .remedy = "check that the loss is not computed from detached tensors"});
}

// Returns the name of the log column with the learning rate of an optimizer's updates.
std::string rate_column(std::string_view name) { return "lr_" + std::string(name); }

bool has_values(const EpochLog& log, std::optional<std::size_t> column) {
  for (std::int64_t row = 0; column && row < log.num_rows(); ++row)
    if (log.value(row, *column)) return true;
  return false;
}

}  // namespace

void warn_unused_optimizers(const TrainState& state) {
  if (!state.model->updates_manually()) return;
  std::set<std::string> unused;
  for (const auto& [name, optimizer] : state.optimizers)
    if (!has_values(state.log, state.log.find_column(rate_column(name), EpochLog::Kind::step_only)))
      unused.insert(name);
  if (unused.size() == state.optimizers.size())
    log_warning(state.model->name() + "::training_step did not call update(optimizer, loss) in this epoch");
  else if (!unused.empty())
    log_warning("optimizers without an update in this epoch: " + list_of_names(unused));
}

void backward_to(const Optimizer& optimizer, const at::Tensor& loss, const at::Tensor& seed,
                 bool retain_graph) {
  std::vector<at::Tensor> learning;
  for (const at::Tensor& parameter : optimizer.parameters())
    if (parameter.requires_grad()) learning.push_back(parameter);
  const HostCaller caller(HostCaller::kBackward);
  if (!learning.empty() && loss.requires_grad())
    loss.backward(seed, retain_graph, /*create_graph=*/false, learning);
}

ManualStep::ManualStep(const StepContext& context, std::unique_ptr<OptimizerUpdate> update)
    : context_(context),
      state_(context.state),
      group_of_norms_(context.options.sync_batchnorm ? context.options.process_group : nullptr),
      update_(std::move(update)) {
  const TrainerOptions& options = context.options;
  if (options.optimizer)
    throw ConfigError(
        {.place = "optimizer",
         .found = "the option is set, but " + state_.model->name() + " creates its optimizers itself",
         .wanted = "only those of its configure_named_optimizers()",
         .remedy = "pass their options to the model"});
  if (options.gradient_shards > 1)
    throw ConfigError({.place = "gradient_shards",
                       .found = std::to_string(options.gradient_shards) + ", but " + state_.model->name() +
                                " runs its updates itself",
                       .wanted = "1"});
  if (options.accumulate_grad_batches > 1)
    throw ConfigError({.place = "accumulate_grad_batches",
                       .found = std::to_string(options.accumulate_grad_batches) + ", but " +
                                state_.model->name() + " runs its updates itself",
                       .wanted = "1",
                       .remedy = "call update() only for every n-th batch"});
  if (options.recheck_every_n_steps > 0)
    throw ConfigError({.place = "recheck_every_n_steps",
                       .found = std::to_string(options.recheck_every_n_steps) + ", but " +
                                state_.model->name() + " runs its updates itself",
                       .wanted = "0"});
  state_.log.column("train_loss");  // comes first in records
}

StepOutcome ManualStep::run(const Batch& batch, WindowPosition /*at*/) {
  const at::AutoGradMode with_gradients(true);  // the caller may have switched them off
  const WideSums wide_sums(context_.needs_wide_sums());
  update_->begin_updates();
  num_counted_ = batch.num_valid();
  const at::Tensor loss = training_step(batch);
  require_one_number(loss, state_.model->name() + "::training_step", "a scalar to log as train_loss");
  state_.log.mark(state_.log.column("train_loss"), loss);
  if (!batch.is_valid()) state_.log.drop_weighted();  // before sums are committed
  update_->end_updates();
  const ActivityScope scope(&context_.clock, Activity::log);
  const Progress& at = state_.progress;
  state_.log.append({.global_step = at.global_step + 1,
                     .batch = at.batch,
                     .lr = state_.lr(),
                     .weight = static_cast<double>(num_counted_)});
  return {.num_samples = num_counted_};
}

at::Tensor ManualStep::training_step(const Batch& batch) {
  const ActivityScope scope(&context_.clock, Activity::forward);
  const UpdatesScope updates(context_.calls, *this);
  const AutocastScope autocast(context_.precision, state_.log.device());
  const SyncBatchNorm::Scope norms(
      {.group = group_of_norms_, .counts = num_counted_ > 0, .scale = static_cast<double>(num_counted_)});
  const HostCaller caller(HostCaller::kTrainingStep);
  const at::Tensor loss = state_.model->training_step(batch);
  state_.model->take_loss_weight();  // each update has a loss of its own
  return loss;
}

std::optional<StepLoss> ManualStep::tested_loss(const at::Tensor& loss) const {
  if (num_counted_ == 0) return std::nullopt;
  const double weight = update_->reduces() ? static_cast<double>(num_counted_) : 1;
  if (loss.is_cpu()) return StepLoss{.number = host_number(loss) * weight};
  const at::NoGradGuard no_grad;
  const at::Tensor number = loss.detach();
  return StepLoss{.on_device = weight == 1 ? number : in_type_of_sums(number).mul(weight)};
}

void ManualStep::update(std::string_view name, const at::Tensor& loss, bool retain_graph) {
  const at::AutoGradMode with_gradients(true);
  const AutocastPause pause(state_.log.device());
  const HostCaller library(nullptr);
  Optimizer& optimizer = state_.require_optimizer(name);
  const std::string text(name);
  const std::string place = state_.model->name() + "::update(" + text + ")";
  require_one_number(loss, place, "a scalar loss");
  optimizer.zero_grad();
  if (context_.precision.has_16_bits() && watched_.insert(text).second)
    warn_of_repeated_uses(loss, *state_.model);
  at::Tensor seed;
  if (state_.scaler) seed = state_.scaler->seed(loss);
  {
    const ActivityScope scope(&context_.clock, Activity::backward);
    backward_to(optimizer, loss, seed, retain_graph);
  }
  if (optimizer.gradients().empty()) refuse_without_gradients(optimizer, place);
  const ActivityScope scope(&context_.clock, Activity::update);
  const double num_samples = static_cast<double>(num_counted_);
  update_->run(optimizer, name,
               {{&loss, 1},
                {.scale = num_samples, .weight = {.number = num_samples}},
                context_.options.on_spike ? tested_loss(loss) : std::nullopt},
               /*closure=*/nullptr);
  state_.log.mark(state_.log.column(rate_column(name), EpochLog::Kind::step_only), optimizer.lr());
  update_->end_update();
}

}  // namespace kindling
