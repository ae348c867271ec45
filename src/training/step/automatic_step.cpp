#include "training/step/automatic_step.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>

#include <utility>

namespace kindling {

AutomaticStep::AutomaticStep(const StepContext& context, std::unique_ptr<BatchGradients> gradients,
                             std::unique_ptr<OptimizerUpdate> update)
    : context_(context),
      state_(context.state),
      gradients_(std::move(gradients)),
      update_(std::move(update)),
      window_(batches_per_step(context.options)),
      group_of_norms_(context.options.sync_batchnorm ? context.options.process_group : nullptr) {
  state_.log.column("train_loss");  // comes first in records
  if (state_.streams.are_used())
    shards_.emplace(state_, context.options.accumulate_grad_batches, context.group());
}

StepOutcome AutomaticStep::run(const Batch& batch, WindowPosition at) {
  const at::AutoGradMode with_gradients(true);  // the caller may have switched them off
  batch_ = &batch;
  if (state_.optimizer->needs_closure()) carried_.emplace(*state_.model);
  if (at.index == 0) {
    window_.begin();
    losses_.clear();
  }
  losses_.push_back(gradients_of(batch, at));
  state_.log.mark(state_.log.column("train_loss"), losses_.back());
  if (!batch.is_valid()) state_.log.drop_weighted();  // before sums are committed
  if (at.is_last) update();
  const std::int64_t num_samples = batch.num_valid();
  end_row(static_cast<double>(num_samples));
  return {.updated = at.is_last,
          .accumulated_batches = at.is_last ? 0 : at.index + 1,
          .num_samples = num_samples};
}

// Values logged after the last batch have the weight of that batch.
void AutomaticStep::end_window() {
  const at::AutoGradMode with_gradients(true);
  update();
  end_row(state_.log.tag(state_.log.num_rows() - 1).weight);
}

GradientShare AutomaticStep::share() const {
  const double samples = window_.num_samples();
  if (samples == 0) return {.scale = 0, .num_samples = 0};
  return {.scale = shards_ ? 1 : window_.expected(), .num_samples = samples};
}

at::Tensor AutomaticStep::gradients_of(const Batch& batch, WindowPosition at) {
  const double factor = window_.add(batch);
  if (shards_) {
    const GradientShards::Scope shard(*shards_, at.index);
    const at::Tensor loss =
        gradients_->compute(batch, /*begins_window=*/true, static_cast<double>(batch.num_valid()));
    shards_->take(*state_.optimizer);
    return loss;
  }
  // A captured step produces all its gradients at once, so none can be sent early. Nor are those of the first
  // step: later ones may use the parameters in another way.
  const bool is_first = !std::exchange(has_run_, true);
  if (at.is_last && !is_first && update_->reduces() && !context_.capture.is_captured())
    update_->send_while_ready(*state_.optimizer, share());
  std::optional<SyncBatchNorm::Scope> norms;
  if (group_of_norms_ != nullptr)
    norms.emplace(SyncBatchNorm::Part{
        .group = group_of_norms_, .counts = batch.is_valid(), .scale = window_.expected()});
  return gradients_->compute(batch, /*begins_window=*/at.index == 0, factor);
}

void AutomaticStep::update() {
  const ActivityScope scope(&context_.clock, Activity::update);
  if (shards_) shards_->give(*state_.optimizer);
  scale_gradients();
  bool is_first = true;  // the first evaluation of the loss has been done
  update_->run(*state_.optimizer, /*name=*/{}, {losses_, share()},
               [&] { return std::exchange(is_first, false) ? losses_.front() : evaluate_again(); });
  losses_.clear();
  update_->end_step();
}

void AutomaticStep::end_row(double weight) {
  const ActivityScope scope(&context_.clock, Activity::log);
  const Progress& at = state_.progress;
  state_.log.append(
      {.global_step = at.global_step + 1, .batch = at.batch, .lr = state_.optimizer->lr(), .weight = weight});
}

void AutomaticStep::scale_gradients() {
  if (update_->reduces() || window_.rest() == 1) return;
  const at::NoGradGuard no_grad;
  if (const auto gradients = state_.optimizer->gradients(); !gradients.empty())
    at::_foreach_mul_(at::TensorList(gradients.data(), gradients.size()), window_.rest());
}

at::Tensor AutomaticStep::evaluate_again() {
  const MutedLog muted(context_.calls, context_.device());
  carried_->put_back();
  return gradients_->compute(*batch_, /*begins_window=*/true, /*factor=*/1);
}

}  // namespace kindling
