#include "training/eager_step.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/full_like.h>

#include <utility>

#include "kindling/base/error.h"

namespace kindling {
namespace {

// While it lives, what the model logs does not count.
class MutedLog {
 public:
  explicit MutedLog(TrainerInfo& info)
      : info_(info), scratch_(info.device()), former_(std::exchange(info.log, &scratch_)) {}
  ~MutedLog() { info_.log = former_; }
  MutedLog(const MutedLog&) = delete;
  MutedLog& operator=(const MutedLog&) = delete;

 private:
  TrainerInfo& info_;
  EpochLog scratch_;
  EpochLog* former_;
};

}  // namespace

EagerStep::EagerStep(TrainState& state, TrainerInfo& info, const TrainerOptions& options,
                     const Callbacks& callbacks)
    : state_(state),
      info_(info),
      update_(state, info, options, callbacks),
      window_(options.accumulate_grad_batches) {
  state_.log.column("train_loss");  // comes first in records
}

void EagerStep::run(const Batch& batch, bool ends_window) {
  const at::AutoGradMode with_gradients(true);  // the caller may have switched them off
  batch_ = &batch;
  if (!state_.optimizer || state_.optimizer->needs_closure()) carried_.emplace(*state_.model);
  accumulate(batch);
  if (ends_window) update();
  end_row(static_cast<double>(batch.num_samples()));
}

// What is logged behind the last batch weighs as much as that.
void EagerStep::end_window() {
  const at::AutoGradMode with_gradients(true);
  update();
  end_row(state_.log.tag(state_.log.num_rows() - 1).weight);
}

// A window that something is thrown in begins again.
void EagerStep::accumulate(const Batch& batch) {
  const std::int64_t before = std::exchange(state_.accumulated_batches, 0);
  if (before == 0) {
    window_.begin();
    losses_.clear();
  }
  const at::Tensor loss = forward(batch, /*begins_window=*/before == 0);
  backward(loss, window_.add(batch.num_samples()));
  state_.log.mark(state_.log.column("train_loss"), loss);
  losses_.push_back(loss);
  state_.accumulated_batches = before + 1;
}

void EagerStep::update() {
  const ActivityScope scope(info_.clock.get(), Activity::update);
  state_.accumulated_batches = 0;
  scale_gradients();
  bool is_first = true;  // of the evaluations of the loss, which has been made
  update_.run(*state_.optimizer, losses_, "grad_norm",
              [&] { return std::exchange(is_first, false) ? losses_.front() : evaluate_again(); });
  losses_.clear();
  update_.guard().mark(state_.log, update_.scaler());
  if (GradScaler* const scaler = update_.scaler()) scaler->adjust(scaler->found_inf());
}

void EagerStep::end_row(double weight) {
  const ActivityScope scope(info_.clock.get(), Activity::log);
  const Progress& at = state_.progress;
  state_.log.append(
      {.global_step = at.global_step + 1, .batch = at.batch, .lr = state_.optimizer->lr(), .weight = weight});
}

at::Tensor EagerStep::forward(const Batch& batch, bool begins_window) {
  const ActivityScope scope(info_.clock.get(), Activity::forward);
  const bool has_optimizer = state_.optimizer != nullptr;
  if (has_optimizer && begins_window) state_.optimizer->zero_grad();
  at::Tensor loss;
  {
    const AutocastScope autocast(info_.precision, state_.log.device());
    loss = state_.model->training_step(batch);
  }
  if (!has_optimizer) state_.require_optimizer().zero_grad();  // what an earlier user of the model has left
  require_scalar(loss);
  return loss;
}

void EagerStep::backward(const at::Tensor& loss, double factor) {
  const ActivityScope scope(info_.clock.get(), Activity::backward);
  if (state_.scaler) {
    at::Tensor seed = state_.scaler->scale();
    if (factor != 1) seed = seed * factor;
    return loss.backward(seed.to(loss.scalar_type()).view(loss.sizes()));
  }
  if (factor == 1) return loss.backward();
  const bool is_known = seed_.defined() && seed_factor_ == factor && seed_.sizes() == loss.sizes() &&
                        seed_.options().type_equal(loss.options());
  if (!is_known) {
    const at::NoGradGuard no_grad;
    seed_ = at::full_like(loss, factor);
    seed_factor_ = factor;
  }
  loss.backward(seed_);
}

void EagerStep::scale_gradients() {
  if (window_.rest() == 1) return;
  const at::NoGradGuard no_grad;
  if (const auto gradients = state_.optimizer->gradients(); !gradients.empty())
    at::_foreach_mul_(at::TensorList(gradients.data(), gradients.size()), window_.rest());
}

at::Tensor EagerStep::evaluate_again() {
  const MutedLog muted(info_);
  carried_->put_back();
  at::Tensor loss = forward(*batch_, /*begins_window=*/true);
  backward(loss, /*factor=*/1);
  return loss;
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
