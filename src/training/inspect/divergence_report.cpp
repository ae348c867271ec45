#include "training/inspect/divergence_report.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "device/random_state.h"
#include "kindling/base/log.h"
#include "kindling/nn/regressor.h"
#include "kindling/optim/clip.h"
#include "kindling/tensors/state_dict.h"
#include "nn/scoped_model_state.h"
#include "training/inspect/nonfinite_watch.h"
#include "training/step/manual_step.h"
#include "training/step/nonfinite_guard.h"

namespace kindling {
namespace {

// While it exists, a step may be run without lasting effects.
class ReplayScope {
 public:
  ReplayScope(const StepContext& context, const RowTag& step)
      : state_(context.state),
        random_state_(context.device()),
        model_(*state_.model, ScopedModelState::Extent::buffers),
        muted_(context.calls, context.device()),
        former_progress_(state_.progress) {
    state_.progress = {.epoch = state_.progress.epoch,
                       .batch = step.batch,
                       .global_step = step.global_step - 1,
                       .phase = Phase::training};
    drop_gradients();
    if (!state_.model->is_training()) state_.model->train();
  }
  ~ReplayScope() {
    drop_gradients();
    state_.progress = former_progress_;
  }
  ReplayScope(const ReplayScope&) = delete;
  ReplayScope& operator=(const ReplayScope&) = delete;

 private:
  void drop_gradients() {
    for (at::Tensor& parameter : state_.model->parameters()) parameter.mutable_grad() = at::Tensor();
  }

  TrainState& state_;
  const RandomStateGuard random_state_;
  const ScopedModelState model_;  // without hidden states, because those before the step are unknown
  MutedLog muted_;
  Progress former_progress_;
};

// Collects the losses of a training step and their optimizers: updates are noted instead of run.
class LossesOfStep : public ManualUpdates {
 public:
  explicit LossesOfStep(TrainState& state) : state_(state) {}

  void update(std::string_view name, const at::Tensor& loss, bool /*retain_graph*/) override {
    all_.emplace_back(&state_.require_optimizer(name), loss);
  }
  void end(const at::Tensor& loss) {
    if (state_.optimizer) all_.emplace_back(state_.optimizer.get(), loss);
  }
  const std::vector<std::pair<Optimizer*, at::Tensor>>& all() const { return all_; }

 private:
  TrainState& state_;
  std::vector<std::pair<Optimizer*, at::Tensor>> all_;
};

constexpr const char* kInBatch = " of its batch has ";
constexpr const char* kInLabels = ", the last of its batch, has ";  // which need not count

void add_sentence(std::string& text, const std::string& sentence) {
  if (!text.empty() && !sentence.empty()) text += "; ";
  text += sentence;
}

}  // namespace

void DivergenceReport::report(const RowTag& step, std::int64_t num_batches, const BatchSource* source) {
  if (step_) return;
  step_ = step.global_step;
  reason_ = source != nullptr ? gathered_findings(step, num_batches, *source)
                              : "its batch is unknown, because it came from a custom training loop";
  log_error("the training loss or a gradient is not finite from step " + std::to_string(*step_) +
            " on, so training stops. Findings for this step: " + reason_ + ". " + advice());
}

bool DivergenceReport::ignores_missing() const {
  const auto* const regressor = dynamic_cast<const Regressor*>(state_.model.get());
  return regressor != nullptr && regressor->regressor_options().ignore_missing;
}

std::string DivergenceReport::advice() const {
  const std::string missing = state_.model->is_regressor() && !ignores_missing()
                                  ? ". If they are missing values, set model.ignore_missing = true (targets) "
                                    "or data.fill_missing = 0 (inputs)"
                                  : "",
                    correct =
                        "Correct these samples; on_nonfinite = \"skip\" trains without their steps" + missing,
                    train_slower = "A smaller learning rate or gradient_clip_val may help";
  if (reason_.find(kInBatch) != std::string::npos) return correct;
  return reason_.find(kInLabels) != std::string::npos ? correct + ". " + train_slower : train_slower;
}

// Each rank checks its own batch, and ranks with a finding save theirs. If no rank finds anything, any batch
// may be the cause, so all save theirs.
std::string DivergenceReport::gathered_findings(const RowTag& step, std::int64_t num_batches,
                                                const BatchSource& source) {
  ProcessGroup* const group = context_.options.process_group.get();
  Replayed own = replayed(step, num_batches, source);
  const auto findings = group != nullptr ? group->all_gather(own.found) : std::vector{own.found};
  if (std::ranges::all_of(findings, &std::string::empty))
    own.found =
        "re-running the step gave finite values, so the cause is random or "
        "step-dependent";
  if (!own.found.empty()) add_sentence(own.found, save(own));
  const std::string place = "batch " + std::to_string(own.step.batch) + " (counted from 0)";
  if (group == nullptr)
    return own.found.find(kInBatch) == std::string::npos && own.found.find(kInLabels) == std::string::npos
               ? own.found
               : place + " of epoch " + std::to_string(state_.progress.epoch + 1) + ": " + own.found;
  if (!own.found.empty())
    own.found = "rank " + std::to_string(group->rank()) + ", " + place + ": " + own.found;
  std::string all;
  for (const std::string& told : group->all_gather(own.found)) add_sentence(all, told);
  return all;
}

DivergenceReport::Replayed DivergenceReport::replayed(const RowTag& step, std::int64_t num_batches,
                                                      const BatchSource& source) {
  Replayed replayed{.step = step};
  try {
    replay(replayed, num_batches, source);
  } catch (const std::exception& error) {
    replayed.found = std::string("re-running the step failed: ") + error.what();
  }
  return replayed;
}

// Runs the batches of the step again, up to the first one with a finding.
void DivergenceReport::replay(Replayed& replayed, std::int64_t num_batches, const BatchSource& source) {
  const ReplayScope scope(context_, replayed.step);
  BatchSource again = source;  // with its own position
  again.seek(state_.progress.epoch, replayed.step.batch);
  for (; replayed.found.empty() && num_batches > 0; --num_batches) {
    replayed.step.batch = state_.progress.batch;
    replayed.batch = {};
    Batch batch;
    if (again.next(batch)) {
      replayed.found = findings_of(batch);
      replayed.batch = batch;
    } else {
      replayed.found = "the data does not return its batch again";
    }
    ++state_.progress.batch;
  }
}

// Numbers of a batch that are not finite, such as labels that do not count, are the cause only if the step
// is not finite, too.
std::string DivergenceReport::findings_of(const Batch& batch) {
  std::string found;
  const std::size_t num_tensors = batch.tensors().size();
  for (std::size_t i = 0; i < num_tensors; ++i) {
    const bool is_labels = i > 0 && i + 1 == num_tensors;
    at::Tensor values = batch.tensors()[i];
    if (is_labels && ignores_missing()) values = values.masked_fill(values.isnan(), 0);
    if (const std::string part = nonfinite_part(values); !part.empty())
      add_sentence(found, "tensor " + std::to_string(i) + (is_labels ? kInLabels : kInBatch) + part);
  }
  if (!is_protected()) {
    add_sentence(found, "the step cannot be re-run, because the optimizer does not respect found_inf");
    return found;
  }
  const std::string of_step = step_findings(batch);
  if (of_step.empty()) return {};
  add_sentence(found, of_step);
  return found;
}

std::string DivergenceReport::step_findings(const Batch& batch) {
  for (const auto& item : state_.model->named_parameters())
    if (const std::string part = nonfinite_part(item.value()); !part.empty())
      return "the parameter '" + item.key() + "' already had " + part + " before the step";
  const at::AutoGradMode with_gradients(true);
  const WideSums wide_sums(context_.needs_wide_sums());
  LossesOfStep losses(state_);
  std::string found;
  {
    const NonfiniteWatch watch(*state_.model);
    const AutocastScope autocast(context_.precision, state_.log.device());
    const UpdatesScope updates(context_.calls, losses);
    state_.model->take_loss_weight();
    losses.end(state_.model->training_step(batch));
    if (const at::Tensor weight = state_.model->take_loss_weight();
        state_.optimizer && weight.defined() && weight.numel() == 1 && weight.item<double>() == 0)
      return {};  // no label counts: the batch contributes nothing
    for (const std::string& finding : watch.findings()) add_sentence(found, finding);
  }
  for (const auto& [optimizer, loss] : losses.all()) {
    if (const std::string part = nonfinite_part(loss); !part.empty())
      return found.empty() ? "the loss has " + part : found;
    backward_to(*optimizer, loss, /*seed=*/{}, /*retain_graph=*/true);
    if (std::string finding = gradient_finding(*optimizer); !finding.empty()) return finding;
    optimizer->zero_grad();
  }
  return {};
}

// Backward runs from the last layer to the first, so the last parameter with a finding is the origin.
std::string DivergenceReport::gradient_finding(Optimizer& optimizer) const {
  std::string found;
  for (const auto& item : state_.model->named_parameters())
    if (const std::string part = nonfinite_part(item.value().grad()); !part.empty())
      found = "the loss is finite, but the gradient of '" + item.key() + "' has " + part;
  if (!found.empty() || context_.options.gradient_clip_val == 0 ||
      context_.options.gradient_clip_algorithm != "norm")
    return found;
  const at::Tensor norm = clip_grad_norm(optimizer.gradients(), context_.options.gradient_clip_val);
  return nonfinite_part(norm).empty() ? "" : "each gradient is finite, but their total norm is not";
}

bool DivergenceReport::is_protected() const {
  if (state_.optimizer) return NonfiniteGuard::protects(*state_.optimizer);
  return std::ranges::all_of(state_.optimizers,
                             [](const auto& item) { return NonfiniteGuard::protects(*item.second); });
}

// Ranks write to different files.
std::string DivergenceReport::save(const Replayed& replayed) const {
  const auto& [findings, batch, step] = replayed;
  if (context_.options.nonfinite_dir.empty() || batch.tensors().empty()) return {};
  const std::int64_t rank = context_.options.process_group ? context_.options.process_group->rank() : 0;
  StateDict saved;
  for (std::size_t i = 0; i < batch.tensors().size(); ++i)
    saved.tensors.emplace_back("batch." + std::to_string(i), batch.tensors()[i]);
  saved.metadata = {{"global_step", std::to_string(step.global_step)},
                    {"epoch", std::to_string(state_.progress.epoch)},
                    {"batch", std::to_string(step.batch)},
                    {"found", findings}};
  char number[32];
  std::snprintf(number, sizeof(number), "%08lld", static_cast<long long>(step.global_step));
  const std::string name = std::string("nonfinite-step-") + number +
                           (rank > 0 ? ".rank" + std::to_string(rank) : "") + ".safetensors";
  try {
    save_safetensors(saved, context_.options.nonfinite_dir / name);
  } catch (const std::exception& error) {
    return std::string("its batch could not be saved: ") + error.what();
  }
  return "its batch is in " + (context_.options.nonfinite_dir / name).string();
}

}  // namespace kindling
