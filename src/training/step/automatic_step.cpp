#include "training/step/automatic_step.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <string>
#include <utility>

#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "tensors/host_number.h"

namespace kindling {
namespace {

// Throws unless a loss that is a weighted mean says what it is a mean over.
void require_weight(const Module& model, const at::Tensor& weight) {
  if (weight.defined() || !model.has_weighted_loss()) return;
  throw ConfigError(
      {.place = model.name() + "::training_step",
       .found = "the loss is a weighted mean (class weights), a step adds up several of them (ranks, "
                "gradient_shards or accumulate_grad_batches), and their weights are unknown",
       .wanted = "a loss with its weight",
       .remedy = "return weighted({loss, sum of the weights of the labels}) from loss()"});
}

TotalWeight total_of(const at::Tensor& weight) {
  return weight.is_cpu() ? TotalWeight{.number = host_number(weight)} : TotalWeight{.on_device = weight};
}

}  // namespace

LossSeed AccumulationWindow::seed(const Batch& batch, const at::Tensor& weight, double unit) const {
  if (!batch.is_valid())
    return {.factor = 0, .skips_backward = weight.defined() && weight.is_cpu() && host_number(weight) == 0};
  if (!weight.defined()) return {.factor = size_of(batch) / unit};
  if (!weight.is_cpu()) return is_alone_ ? LossSeed{} : LossSeed{.weight_unit = unit};
  const double number = host_number(weight);
  if (!(number >= 0))
    throw DataError({.place = "the weight of the loss",
                     .found = "it is " + number_text(number),
                     .wanted = "a number, at least 0",
                     .remedy = "return the number of labels, or the sum of their weights"});
  if (number == 0) return {.factor = 0, .skips_backward = true};
  return {.factor = is_alone_ ? 1 : number / unit};
}

void AccumulationWindow::add(const Batch& batch, const at::Tensor& weight) {
  if (!batch.is_valid()) return;
  if (!weight.defined()) {
    total_.number += size_of(batch);
  } else if (weight.is_cpu()) {
    total_.number += host_number(weight);
  } else if (is_alone_) {
    total_.number = 1;  // is not needed
  } else {
    const at::NoGradGuard no_grad;
    total_.on_device = total_.is_known() ? weight.clone() : total_.on_device.add(weight);
  }
}

void AccumulationWindow::add_loss(const Batch& batch, const at::Tensor& weight, const at::Tensor& loss,
                                  const at::Tensor& counted) {
  if (!batch.is_valid()) return;
  const double number = !weight.defined() ? size_of(batch) : weight.is_cpu() ? host_number(weight) : 1;
  if (number == 0) return;
  if (!loss_sum_) loss_sum_.emplace();
  if (loss.is_cpu() && (!weight.defined() || weight.is_cpu())) {
    loss_sum_->number += host_number(loss) * (is_alone_ ? 1 : number);
    return;
  }
  const at::NoGradGuard no_grad;
  const bool is_weighted = weight.defined() && !weight.is_cpu();
  at::Tensor sum = (is_weighted ? counted : loss).detach();
  if (!is_alone_) sum = in_type_of_sums(sum);
  if (is_alone_ && is_weighted) sum = sum.masked_fill(weight.le(0), std::numeric_limits<double>::quiet_NaN());
  if (!is_alone_) sum = is_weighted ? sum.mul(weight) : sum.mul(number);
  at::Tensor& total = loss_sum_->on_device;
  total = total.defined() ? total.add(sum) : sum;
}

std::optional<StepLoss> AccumulationWindow::mean_loss() const {
  if (!loss_sum_ || is_alone_) return loss_sum_;
  if (!loss_sum_->on_device.defined()) return StepLoss{.number = loss_sum_->number / total_.number};
  const at::NoGradGuard no_grad;
  const at::Tensor& sum = loss_sum_->on_device;
  if (total_.is_known()) return StepLoss{.on_device = sum.div(total_.number)};
  return StepLoss{.on_device = sum.div(total_.on_device.add(total_.number))};
}

void AccumulationWindow::complete(Optimizer& optimizer) const {
  const at::NoGradGuard no_grad;
  const auto gradients = optimizer.gradients();
  if (is_alone_ || gradients.empty() || total_.is_known_zero()) return;
  const at::TensorList list(gradients.data(), gradients.size());
  if (!total_.is_known()) {
    const at::Tensor total = total_.on_device.add(total_.number);
    at::_foreach_mul_(list, total.masked_fill(total.eq(0), 1).reciprocal().mul(expected_));
  } else if (total_.number != expected_) {
    at::_foreach_mul_(list, expected_ / total_.number);
  }
}

AutomaticStep::AutomaticStep(const StepContext& context, std::unique_ptr<BatchGradients> gradients,
                             std::unique_ptr<OptimizerUpdate> update)
    : context_(context),
      state_(context.state),
      gradients_(std::move(gradients)),
      update_(std::move(update)),
      window_(batches_per_step(context.options),
              /*is_alone=*/batches_per_step(context.options) == 1 && !update_->reduces()),
      group_of_norms_(context.options.sync_batchnorm ? context.options.process_group : nullptr) {
  state_.log.column("train_loss");  // comes first in records
  if (state_.streams.are_used())
    shards_.emplace(state_, context.options.accumulate_grad_batches, context.group());
  if (context.options.recheck_every_n_steps > 0) recheck_.emplace(context);
}

StepOutcome AutomaticStep::run(const Batch& batch, WindowPosition at) {
  const at::AutoGradMode with_gradients(true);  // the caller may have switched them off
  const WideSums wide_sums(context_.needs_wide_sums());
  batch_ = &batch;
  if (state_.optimizer->needs_closure()) carried_.emplace(*state_.model);
  if (at.index == 0) {
    window_.begin();
    losses_.clear();
  }
  const at::Tensor loss = gradients_of(batch, at), weight = BatchGradients::weight_in(state_.log);
  window_.add(batch, weight);
  note_loss(batch, loss, weight);
  const std::size_t column = state_.log.column("train_loss");
  state_.log.mark(column, loss);
  if (weight.defined())
    state_.log.weigh_by(column, state_.log.column(kLossWeightColumn, EpochLog::Kind::internal));
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
  const WideSums wide_sums(context_.needs_wide_sums());
  update();
  end_row(state_.log.tag(state_.log.num_rows() - 1).weight);
}

GradientShards::Sums AutomaticStep::sums_of_shard(const Batch& batch, const at::Tensor& loss) {
  const at::NoGradGuard no_grad;
  if (!batch.is_valid())
    return {.weight = at::zeros({}), .loss = tests_spikes() ? at::zeros({}) : at::Tensor()};
  const at::Tensor weight = BatchGradients::weight_in(state_.log);
  const bool is_wide =
      state_.optimizer->parameters().front().scalar_type() == at::kDouble;  // see GradientPlan
  const at::ScalarType type = is_wide ? at::kDouble : at::kFloat;
  GradientShards::Sums sums;
  sums.weight = weight.defined() ? weight.to(type, /*non_blocking=*/false, /*copy=*/true)
                                 : at::scalar_tensor(static_cast<double>(batch.num_valid()), at::dtype(type));
  if (!tests_spikes()) return sums;
  sums.loss = loss.detach().view(at::IntArrayRef()).to(type).mul(sums.weight);
  if (!weight.defined()) return sums;
  // The loss of a batch without a label that counts may be NaN.
  if (!weight.is_cpu())
    sums.loss.masked_fill_(sums.weight.eq(0), 0);
  else if (host_number(weight) == 0)
    sums.loss.zero_();
  return sums;
}

// Keeps the losses that must be finite. That of a batch without a label that counts may be NaN.
void AutomaticStep::note_loss(const Batch& batch, const at::Tensor& loss, const at::Tensor& weight) {
  if (!weight.defined())
    losses_.push_back(loss);
  else if (!weight.is_cpu())
    losses_.push_back(counted_loss());
  else if (host_number(weight) > 0)
    losses_.push_back(loss);
  if (tests_spikes() && !shards_)
    window_.add_loss(batch, weight, loss, losses_.empty() ? at::Tensor() : losses_.back());
}

// A replay lends it until the next batch.
at::Tensor AutomaticStep::counted_loss() {
  const at::NoGradGuard no_grad;
  const at::Tensor counted =
      state_.log.marked_tensor(state_.log.column(kCountedLossColumn, EpochLog::Kind::internal));
  return batches_per_step(context_.options) > 1 ? counted.clone() : counted;
}

GradientShare AutomaticStep::share() const {
  if (total_.is_known_zero()) return {.scale = 0, .weight = {}};
  return {.scale = shards_ ? 1 : window_.expected(), .weight = total_};
}

std::optional<StepLoss> AutomaticStep::tested_loss() const {
  if (!tests_spikes()) return std::nullopt;
  if (shards_) return loss_sum_;
  return update_->reduces() ? window_.loss_sum() : window_.mean_loss();
}

at::Tensor AutomaticStep::gradients_of(const Batch& batch, WindowPosition at) {
  window_.expect(batch);
  const SeedOf seed_of = [&](const at::Tensor& weight) {
    if (batches_per_step(context_.options) > 1 || update_->reduces()) require_weight(*state_.model, weight);
    LossSeed seed = window_.seed(batch, weight, shards_ ? 1 : window_.expected());
    if (group_of_norms_ != nullptr) seed.skips_backward = false;  // ranks add up sums in it
    return seed;
  };
  const bool is_checked = at.index == 0 && recheck_ && recheck_->is_due();
  if (shards_) {
    const GradientShards::Scope shard(*shards_, at.index);
    const at::Tensor loss = compute(batch, /*begins_window=*/true, is_checked, seed_of);
    shards_->take(*state_.optimizer, sums_of_shard(batch, loss));
    return loss;
  }
  // A captured step produces all its gradients at once, so none can be sent early. Nor are those of the first
  // step: later ones may use the parameters in another way.
  const bool is_first = !std::exchange(has_run_, true);
  const bool is_padding = !batch.is_valid() && window_.total().is_known_zero();
  if (at.is_last && !is_first && !is_checked && update_->reduces() && !context_.capture.is_captured())
    update_->send_while_ready(*state_.optimizer,
                              {.scale = is_padding ? 0 : window_.expected(), .weight = {}});
  std::optional<SyncBatchNorm::Scope> norms;
  if (group_of_norms_ != nullptr)
    norms.emplace(SyncBatchNorm::Part{
        .group = group_of_norms_, .counts = batch.is_valid(), .scale = window_.expected()});
  return compute(batch, /*begins_window=*/at.index == 0, is_checked, seed_of);
}

at::Tensor AutomaticStep::compute(const Batch& batch, bool begins_window, bool is_checked,
                                  const SeedOf& seed_of) {
  if (!is_checked) return gradients_->compute(batch, begins_window, seed_of);
  return recheck_->run([&] { return gradients_->compute(batch, /*begins_window=*/true, seed_of); },
                       [&] { return gradients_->BatchGradients::compute(batch, false, seed_of); });
}

void AutomaticStep::update() {
  const ActivityScope scope(&context_.clock, Activity::update);
  total_ = window_.total();
  if (shards_) {
    const GradientShards::Sums sums = shards_->give(*state_.optimizer);
    total_ = total_of(sums.weight);
    loss_sum_.reset();
    if (sums.loss.defined())
      loss_sum_ =
          sums.loss.is_cpu() ? StepLoss{.number = host_number(sums.loss)} : StepLoss{.on_device = sums.loss};
  }
  if (!update_->reduces()) window_.complete(*state_.optimizer);
  bool is_first = true;  // the first evaluation of the loss has been done
  update_->run(*state_.optimizer, /*name=*/{}, {losses_, share(), tested_loss()},
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

at::Tensor AutomaticStep::evaluate_again() {
  const MutedLog muted(context_.calls, context_.device());
  carried_->put_back();
  return gradients_->compute(*batch_, /*begins_window=*/true, [](const at::Tensor&) { return LossSeed{}; });
}

}  // namespace kindling
