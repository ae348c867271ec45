#include "training/recorded_gradients.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "device/random_state.h"
#include "graph/digest.h"
#include "graph/kept_values.h"
#include "graph/operator_recorder.h"
#include "kindling/base/log.h"

namespace kindling {
namespace {

// Batches of more layouts, as sequences of all lengths have them, are not worth their recordings.
constexpr std::size_t kMaxLayouts = 8;
// A model that changes more often is not worth them either.
constexpr std::int64_t kMaxLooks = 100;
// Replays between two that are looked at, in epochs that are long or never end.
constexpr std::int64_t kMostUnchecked = 1000;

// Takes the gradients that are there away, so that those of a batch come alone, and adds these afterwards.
class GradientsApart {
 public:
  explicit GradientsApart(const std::vector<at::Tensor>& parameters) : parameters_(parameters) {
    for (const at::Tensor& parameter : parameters_)
      before_.push_back(std::exchange(parameter.mutable_grad(), {}));
  }
  ~GradientsApart() {
    for (std::size_t i = 0; i < before_.size(); ++i)
      if (before_[i].defined()) parameters_[i].mutable_grad() = before_[i];
  }
  GradientsApart(const GradientsApart&) = delete;
  GradientsApart& operator=(const GradientsApart&) = delete;
  // Gives the new ones; what has been there before takes them up.
  std::vector<at::Tensor> join() {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> made;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      at::Tensor& gradient = parameters_[i].mutable_grad();
      made.push_back(gradient);
      if (!before_[i].defined()) continue;
      if (gradient.defined()) before_[i].add_(gradient);
      gradient = std::exchange(before_[i], {});
    }
    return made;
  }

 private:
  const std::vector<at::Tensor>& parameters_;
  std::vector<at::Tensor> before_;
};

// Which they are, and how often they have been written to.
std::vector<std::pair<const c10::TensorImpl*, std::uint32_t>> states_of_gradients(
    const std::vector<at::Tensor>& parameters) {
  std::vector<std::pair<const c10::TensorImpl*, std::uint32_t>> states;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    states.emplace_back(gradient.unsafeGetTensorImpl(), gradient.defined() ? gradient._version() : 0);
  }
  return states;
}

}  // namespace

RecordedGradients::RecordedGradients(TrainState& state, TrainerInfo& info, const TrainerOptions& options)
    : state_(state), info_(info), options_(options), eager_(state, info) {}

at::Tensor RecordedGradients::compute(const Batch& batch, bool begins_window, double factor) {
  if (state_.optimizer && state_.optimizer->needs_closure() && !is_off_)
    give_up("the optimizer evaluates the loss several times");
  if (is_off_ || !state_.optimizer) return eager_.compute(batch, begins_window, factor);
  if (begins_window) state_.optimizer->zero_grad();
  if (RecordedBatch* const latest = std::exchange(latest_, nullptr))
    if (const std::string reason = latest->why_not(); !reason.empty()) give_up(reason);
  if (has_changed()) begin_anew();
  RecordedBatch* const recorded = is_off_ ? nullptr : recorded_like(batch);
  if (recorded == nullptr) return eager_.compute(batch, begins_window, factor);
  return advance(*recorded, batch, factor);
}

// A model may get other layers, weights or modes at any time, and then it is another one.
bool RecordedGradients::has_changed() {
  const bool is_new_epoch = std::exchange(looked_in_epoch_, state_.progress.epoch) != state_.progress.epoch;
  return !look_ || !look_->holds() || (is_new_epoch && !look_->has_same_parts(*state_.model));
}

void RecordedGradients::begin_anew() {
  batches_.clear();
  running_ = nullptr;
  look_.emplace(*state_.model);
  is_cleared_.clear();
  for (const at::Tensor& parameter : look_->parameters())
    is_cleared_.push_back(std::ranges::any_of(state_.optimizer->parameters(), [&](const at::Tensor& trained) {
      return trained.is_same(parameter);
    }));
  if (++num_looks_ > kMaxLooks) return give_up("the model changes again and again");
  if (const std::string reason = look_->why_not(); !reason.empty()) give_up(reason);
}

RecordedBatch* RecordedGradients::recorded_like(const Batch& batch) {
  const auto fits = [&](const auto& recorded) { return recorded->fits(batch); };
  if (const auto found = std::ranges::find_if(batches_, fits); found != batches_.end()) return found->get();
  if (batches_.size() < kMaxLayouts)
    return batches_.emplace_back(std::make_unique<RecordedBatch>(batch)).get();
  give_up("its batches have more than " + std::to_string(kMaxLayouts) + " layouts");
  return nullptr;
}

at::Tensor RecordedGradients::advance(RecordedBatch& recorded, const Batch& batch, double factor) {
  if (running_ != nullptr && running_ != &recorded)
    std::exchange(running_, nullptr)->release(Replay::Memory::all);
  if (!recorded.seed().defined()) return warm_up(recorded, batch, factor);
  if (recorded.replay() == nullptr && !recorded.is_recorded()) return record(recorded, batch, factor);
  running_ = &recorded;
  const bool is_first = recorded.replay() == nullptr;
  if (!is_first && recorded.replay()->has_lost_tensors()) {
    begin_anew();
    return eager_.compute(batch, /*begins_window=*/false, factor);
  }
  if (!is_first && recorded.replay()->is_lent())
    return eager_.compute(batch, /*begins_window=*/false, factor);
  const bool is_new_epoch = std::exchange(checked_in_epoch_, state_.progress.epoch) != state_.progress.epoch;
  if (is_first || is_new_epoch || ++num_unchecked_ >= kMostUnchecked) {
    num_unchecked_ = 0;
    return checked(recorded, batch, factor);
  }
  return replay(recorded, batch, factor);
}

at::Tensor RecordedGradients::warm_up(RecordedBatch& recorded, const Batch& batch, double factor) {
  const auto before = states_of_gradients(look_->parameters());
  at::Tensor loss = eager_.forward(batch, /*begins_window=*/false);
  const bool is_forward = states_of_gradients(look_->parameters()) == before;
  eager_.backward(loss, factor);
  recorded.take_seed_of(loss);
  // In a window such gradients would not be added in the same order.
  if (!is_forward) give_up("its forward computes gradients of its own");
  return loss;
}

BatchResults RecordedGradients::compute_apart(const Batch& batch, RecordedBatch& recorded, double factor,
                                              Recording* recording) {
  GradientsApart apart(look_->parameters());
  const MarkedRow before(state_.log);  // by callbacks
  BatchResults results;
  std::optional<OperatorRecorder> recorder;
  if (recording != nullptr) recorder.emplace(*recording);
  results.loss = eager_.forward(batch, /*begins_window=*/false);
  recorder.reset();
  fill_seed(recorded, results.loss, factor);
  results.row = MarkedRow(state_.log, before);
  results.logged = results.row.take_tensors();
  if (recording != nullptr) {
    recording->num_forward_calls = recording->calls.size();
    recorder.emplace(*recording);
  }
  {
    const ActivityScope scope(info_.clock.get(), Activity::backward);
    results.loss.backward(recorded.seed());
  }
  recorder.reset();
  results.gradients = apart.join();
  return results;
}

void RecordedGradients::fill_seed(RecordedBatch& recorded, const at::Tensor& loss, double factor) {
  if (!state_.scaler && recorded.seed_factor() == factor) return;
  recorded.set_seed(eager_.seed(loss, factor), factor);
}

at::Tensor RecordedGradients::record(RecordedBatch& recorded, const Batch& batch, double factor) {
  if (const std::string reason = OperatorRecorder::why_not(); !reason.empty()) {
    give_up(reason);
    return eager_.compute(batch, /*begins_window=*/false, factor);
  }
  Recording recording = recorded.begin_recording(batch, *look_);
  const BatchResults results = compute_apart(batch, recorded, factor, &recording);
  recorded.end_recording(std::move(recording), results);
  latest_ = &recorded;
  return results.loss;
}

at::Tensor RecordedGradients::replay(RecordedBatch& recorded, const Batch& batch, double factor) {
  at::Tensor loss;
  {
    const ActivityScope scope(info_.clock.get(), Activity::forward);
    loss = recorded.forward(batch, state_.log);
  }
  const ActivityScope scope(info_.clock.get(), Activity::backward);
  fill_seed(recorded, loss, factor);
  const auto gradients = recorded.backward();
  const at::NoGradGuard no_grad;
  const bool is_alone = options_.accumulate_grad_batches == 1;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    at::Tensor& gradient = look_->parameters()[i].mutable_grad();
    if (!gradients[i].defined()) continue;
    if (gradient.defined())
      gradient.add_(gradients[i]);
    else
      gradient = is_alone && is_cleared_[i] ? gradients[i] : gradients[i].clone();
  }
  return is_alone ? loss : loss.clone();
}

// Some operators write to buffers and do not say so.
std::vector<at::Tensor> RecordedGradients::changed_by(const RecordedBatch& recorded) const {
  std::vector<at::Tensor> changed = look_->buffers();
  std::ranges::copy(recorded.replay()->changed(), std::back_inserter(changed));
  return changed;
}

// What a replay gives and changes; the changes are taken back.
RecordedGradients::Outcome RecordedGradients::try_replay(RecordedBatch& recorded, const Batch& batch,
                                                         double factor) {
  const RandomStateGuard random_state_guard(cpu());
  const KeptValues buffers(look_->buffers());
  Outcome outcome;
  try {
    if (recorded.replay() == nullptr) {
      const RandomStateGuard of_first_run(cpu());
      const KeptValues before_first_run(look_->buffers());
      recorded.make_replay(batch);
    }
    const KeptValues changed(recorded.replay()->changed());
    EpochLog log(cpu(), /*capacity=*/1);
    const at::Tensor loss = recorded.forward(batch, log);
    fill_seed(recorded, loss, factor);
    recorded.backward();
    outcome = {.results = digests(recorded.replay()->outputs()),
               .changes = digests(changed_by(recorded)),
               .random = digests(random_state(cpu()))};
  } catch (const c10::Error& error) {
    outcome.failure = error.what_without_backtrace();
  }
  // The step that comes now takes as much memory as a replay.
  recorded.release(Replay::Memory::all);
  return outcome;
}

at::Tensor RecordedGradients::checked(RecordedBatch& recorded, const Batch& batch, double factor) {
  const Outcome outcome = try_replay(recorded, batch, factor);
  const BatchResults results = compute_apart(batch, recorded, factor, nullptr);
  if (!outcome.failure.empty()) {
    give_up("a replay fails: " + outcome.failure);
  } else if (recorded.row() != results.row || outcome.results != digests(results.all()) ||
             outcome.random != digests(random_state(cpu())) ||
             outcome.changes != digests(changed_by(recorded))) {
    log_warning(
        "step_graph: a step that was recorded does something else now; from here on none is replayed. "
        "A model whose steps differ from each other must not say static_step()");
    give_up("a replay differs from the step itself");
  }
  return results.loss;
}

void RecordedGradients::end_epoch() {
  if (running_ != nullptr) running_->release(Replay::Memory::intermediate);
}

void RecordedGradients::give_up(const std::string& reason) {
  is_off_ = true;
  batches_.clear();
  latest_ = running_ = nullptr;
  info_.why_not_recorded = reason;
  const std::string text = "step_graph: steps are not recorded: " + reason;
  if (options_.step_graph == "on")
    log_warning(text);
  else
    log_info(text);
}

}  // namespace kindling
