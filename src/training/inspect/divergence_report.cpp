#include "training/divergence_report.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "device/random_state.h"
#include "kindling/base/log.h"
#include "kindling/optim/clip.h"
#include "kindling/tensors/state_dict.h"
#include "nn/carried_states.h"
#include "training/manual_step.h"
#include "training/nonfinite_guard.h"
#include "training/nonfinite_watch.h"

namespace kindling {
namespace {

std::vector<std::pair<at::Tensor, at::Tensor>> with_copies(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs;
  for (const at::Tensor& tensor : tensors) pairs.emplace_back(tensor, tensor.clone());
  return pairs;
}

// While it lives, a step may be done that leaves nothing behind.
class ReplayScope {
 public:
  ReplayScope(TrainState& state, TrainerInfo& info, const RowTag& step)
      : state_(state),
        info_(info),
        random_state_(info.device()),
        states_aside_(*state.model, /*of_training=*/true),
        buffers_(with_copies(state.model->buffers())),
        scratch_(state.log.device()),
        former_progress_(state.progress),
        former_log_(std::exchange(info.log, &scratch_)),
        was_training_(state.model->is_training()) {
    state_.progress = {.epoch = state.progress.epoch,
                       .batch = step.batch,
                       .global_step = step.global_step - 1,
                       .phase = Phase::training};
    drop_gradients();
    if (!was_training_) state_.model->train();
  }
  ~ReplayScope() {
    const at::NoGradGuard no_grad;
    for (auto& [buffer, former] : buffers_) buffer.copy_(former);
    drop_gradients();
    if (!was_training_) state_.model->eval();
    info_.log = former_log_;
    state_.progress = former_progress_;
  }
  ReplayScope(const ReplayScope&) = delete;
  ReplayScope& operator=(const ReplayScope&) = delete;

 private:
  void drop_gradients() {
    for (at::Tensor& parameter : state_.model->parameters()) parameter.mutable_grad() = at::Tensor();
  }

  TrainState& state_;
  TrainerInfo& info_;
  const RandomStateGuard random_state_;
  const CarriedStatesAside states_aside_;  // those of then are not known any more
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;
  EpochLog scratch_;
  Progress former_progress_;
  EpochLog* former_log_;
  bool was_training_;
};

// What a training step minimises, and by which optimizer: updates are noted instead of run.
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

void add_sentence(std::string& text, const std::string& sentence) {
  if (!text.empty() && !sentence.empty()) text += "; ";
  text += sentence;
}

}  // namespace

void DivergenceReport::tell(const RowTag& step, std::int64_t num_batches, const BatchSource* source) {
  if (step_) return;
  step_ = step.global_step;
  const std::string found = source != nullptr ? told_by_all(step, num_batches, *source)
                                              : "its batch came from an own loop and is not known";
  log_warning("the training loss or a gradient is not finite from step " + std::to_string(*step_) +
              " on: training ends here. Of this step: " + found +
              ". A smaller learning rate or gradient_clip_val may help");
}

// Whose batch is to blame is known when each has looked at its own. Those save theirs; where nothing is found
// anywhere, it may have been any of them.
std::string DivergenceReport::told_by_all(const RowTag& step, std::int64_t num_batches,
                                          const BatchSource& source) {
  ProcessGroup* const group = options_.process_group.get();
  Replayed own = replayed(step, num_batches, source);
  const auto findings = group != nullptr ? group->all_gather(own.found) : std::vector{own.found};
  if (std::ranges::all_of(findings, &std::string::empty))
    own.found =
        "when it was done once more everything was finite, so it hangs on random numbers or on what changes "
        "from step to step";
  if (!own.found.empty()) add_sentence(own.found, save(own));
  if (group == nullptr) return own.found;
  if (!own.found.empty())
    own.found = "process " + std::to_string(group->rank()) + ", batch " + std::to_string(own.step.batch) +
                " (counted from 0): " + own.found;
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
    replayed.found = std::string("doing it once more has failed: ") + error.what();
  }
  return replayed;
}

// Up to the batch in which something is found.
void DivergenceReport::replay(Replayed& replayed, std::int64_t num_batches, const BatchSource& source) {
  const ReplayScope scope(state_, info_, replayed.step);
  BatchSource again = source;  // with a place of its own
  again.seek(state_.progress.epoch, replayed.step.batch);
  for (; replayed.found.empty() && num_batches > 0; --num_batches) {
    replayed.step.batch = state_.progress.batch;
    replayed.batch = {};
    Batch batch;
    if (again.next(batch)) {
      replayed.found = findings_of(batch);
      replayed.batch = batch;
    } else {
      replayed.found = "the data does not give its batch again";
    }
    ++state_.progress.batch;
  }
}

std::string DivergenceReport::findings_of(const Batch& batch) {
  std::string found;
  for (std::size_t i = 0; i < batch.tensors().size(); ++i)
    if (const std::string part = nonfinite_part(batch.tensors()[i]); !part.empty())
      add_sentence(found, "tensor " + std::to_string(i) + " of its batch has " + part);
  if (is_protected())
    add_sentence(found, step_findings(batch));
  else
    add_sentence(found, "it cannot be done once more, because the optimizer does not heed found_inf");
  return found;
}

std::string DivergenceReport::step_findings(const Batch& batch) {
  for (const auto& item : state_.model->named_parameters())
    if (const std::string part = nonfinite_part(item.value()); !part.empty())
      return "the parameter '" + item.key() + "' had " + part + " before it";
  const at::AutoGradMode with_gradients(true);
  LossesOfStep losses(state_);
  std::string found;
  {
    const NonfiniteWatch watch(*state_.model);
    const AutocastScope autocast(info_.precision, state_.log.device());
    const UpdatesScope updates(info_, losses);
    losses.end(state_.model->training_step(batch));
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

// Backward goes from the last layer to the first, so the last one is where it began.
std::string DivergenceReport::gradient_finding(Optimizer& optimizer) const {
  std::string found;
  for (const auto& item : state_.model->named_parameters())
    if (const std::string part = nonfinite_part(item.value().grad()); !part.empty())
      found = "the loss is finite, the gradient of '" + item.key() + "' has " + part;
  if (!found.empty() || options_.gradient_clip_val == 0) return found;
  const at::Tensor norm = clip_grad_norm(optimizer.gradients(), options_.gradient_clip_val);
  return nonfinite_part(norm).empty() ? "" : "each gradient is finite, their common norm is not";
}

bool DivergenceReport::is_protected() const {
  if (state_.optimizer) return NonfiniteGuard::protects(*state_.optimizer);
  return std::ranges::all_of(state_.optimizers,
                             [](const auto& item) { return NonfiniteGuard::protects(*item.second); });
}

// No two processes write the same file.
std::string DivergenceReport::save(const Replayed& replayed) const {
  const auto& [findings, batch, step] = replayed;
  if (options_.nonfinite_dir.empty() || batch.tensors().empty()) return {};
  const std::int64_t rank = options_.process_group ? options_.process_group->rank() : 0;
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
    save_safetensors(saved, options_.nonfinite_dir / name);
  } catch (const std::exception& error) {
    return std::string("its batch could not be saved: ") + error.what();
  }
  return "its batch is in " + (options_.nonfinite_dir / name).string();
}

}  // namespace kindling
