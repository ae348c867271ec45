#include "training/step/automatic_step.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>

#include <utility>

namespace kindling {

AutomaticStep::AutomaticStep(TrainingContext& context, std::unique_ptr<BatchGradients> gradients,
                             std::unique_ptr<UpdateCapture> capture)
    : gradients_(std::move(gradients)),
      context_(context),
      state_(context.state),
      update_(context, std::move(capture)),
      window_(context.batches_per_step()),
      group_of_norms_(context.options.sync_batchnorm ? context.options.process_group : nullptr) {
  state_.log.column("train_loss");  // comes first in records
  if (state_.streams.are_used())
    shards_.emplace(state_, context.options.accumulate_grad_batches, context.group());
}

void AutomaticStep::run(const Batch& batch, bool ends_window) {
  const at::AutoGradMode with_gradients(true);  // the caller may have switched them off
  batch_ = &batch;
  if (!state_.optimizer || state_.optimizer->needs_closure()) carried_.emplace(*state_.model);
  accumulate(batch, ends_window);
  if (!batch.is_valid()) state_.log.drop_weighed();  // before sums are settled
  if (ends_window) update();
  end_row(static_cast<double>(batch.num_valid()));
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

// A window in which something was thrown starts again.
void AutomaticStep::accumulate(const Batch& batch, bool ends_window) {
  const std::int64_t before = std::exchange(state_.accumulated_batches, 0);
  if (before == 0) {
    window_.begin();
    losses_.clear();
  }
  const at::Tensor loss = gradients_of(batch, before, ends_window);
  state_.log.mark(state_.log.column("train_loss"), loss);
  losses_.push_back(loss);
  state_.accumulated_batches = before + 1;
}

// `before`: batches of the window so far.
at::Tensor AutomaticStep::gradients_of(const Batch& batch, std::int64_t before, bool ends_window) {
  const double factor = window_.add(batch);
  if (shards_) {
    const GradientShards::Scope shard(*shards_, before);
    const at::Tensor loss =
        gradients_->compute(batch, /*begins_window=*/true, static_cast<double>(batch.num_valid()));
    shards_->take(*state_.optimizer);
    return loss;
  }
  // A captured step produces all its gradients at once, so none can be sent early.
  if (ends_window && state_.optimizer && !context_.capture.is_captured())
    update_.send_while_ready(*state_.optimizer, share());
  const SyncBatchNorm::Scope norms(
      {.group = group_of_norms_, .counts = batch.is_valid(), .scale = window_.expected()});
  return gradients_->compute(batch, /*begins_window=*/before == 0, factor);
}

void AutomaticStep::update() {
  const ActivityScope scope(&context_.clock, Activity::update);
  state_.accumulated_batches = 0;
  if (shards_) shards_->give(*state_.optimizer);
  scale_gradients();
  bool is_first = true;  // the first evaluation of the loss has been done
  update_.run(*state_.optimizer, /*name=*/{}, {losses_, share()},
              [&] { return std::exchange(is_first, false) ? losses_.front() : evaluate_again(); });
  losses_.clear();
  update_.guard().mark(state_.log, update_.scaler());
  if (GradScaler* const scaler = update_.scaler()) scaler->adjust(scaler->found_inf());
}

void AutomaticStep::end_row(double weight) {
  const ActivityScope scope(&context_.clock, Activity::log);
  const Progress& at = state_.progress;
  state_.log.append(
      {.global_step = at.global_step + 1, .batch = at.batch, .lr = state_.optimizer->lr(), .weight = weight});
}

void AutomaticStep::scale_gradients() {
  if (update_.reduces() || window_.rest() == 1) return;
  const at::NoGradGuard no_grad;
  if (const auto gradients = state_.optimizer->gradients(); !gradients.empty())
    at::_foreach_mul_(at::TensorList(gradients.data(), gradients.size()), window_.rest());
}

at::Tensor AutomaticStep::evaluate_again() {
  const MutedLog muted(context_);
  carried_->put_back();
  return gradients_->compute(*batch_, /*begins_window=*/true, /*factor=*/1);
}

}  // namespace kindling
