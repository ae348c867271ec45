#include "training/capture/captured_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "device/float32_products.h"
#include "device/libtorch_errors.h"
#include "device/random_state.h"
#include "graph/device/backward_on_this_thread.h"
#include "graph/device/device_graph.h"
#include "graph/device/side_stream.h"
#include "graph/recording/operator_recorder.h"
#include "kindling/base/log.h"
#include "nn/untrained_tensors.h"
#include "tensors/tensor_snapshot.h"
#include "training/capture/capture.h"
#include "training/capture/captured_update.h"
#include "training/step/gradients_apart.h"

namespace kindling {
namespace {

// With more layouts, such as sequences of all lengths, recording does not pay off.
constexpr std::size_t kMaxLayouts = 8;
// Nor does it for a model that changes more often.
constexpr std::int64_t kMaxLooks = 100;
// Replays between two checks, in epochs that are long or never end.
constexpr std::int64_t kMostUnchecked = 1000;

// Returns the identities of the gradients and their version counters.
std::vector<std::pair<const c10::TensorImpl*, std::uint32_t>> states_of_gradients(
    const std::vector<at::Tensor>& parameters) {
  std::vector<std::pair<const c10::TensorImpl*, std::uint32_t>> states;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    states.emplace_back(gradient.unsafeGetTensorImpl(), gradient.defined() ? gradient._version() : 0);
  }
  return states;
}

// Adds gradients to those that parameters have; undefined ones are skipped. A parameter without a gradient
// takes the tensor itself if `may_keep(index)`, else a copy. Adds all at once, which needs fewer kernel
// launches on a device.
template <class MayKeep>
void add_gradients(std::span<const at::Tensor> gradients, const std::vector<at::Tensor>& parameters,
                   const MayKeep& may_keep) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> sums, addends, copies, originals;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    at::Tensor& gradient = parameters[i].mutable_grad();
    if (!gradients[i].defined()) continue;
    if (gradient.defined()) {
      sums.push_back(gradient);
      addends.push_back(gradients[i]);
    } else if (may_keep(i)) {
      gradient = gradients[i];
    } else {
      gradient = at::empty_like(gradients[i]);
      copies.push_back(gradient);
      originals.push_back(gradients[i]);
    }
  }
  if (!sums.empty()) at::_foreach_add_(sums, addends);
  if (!copies.empty()) at::_foreach_copy_(copies, originals);
}

}  // namespace

CapturedGradients::CapturedGradients(const StepContext& context)
    : BatchGradients(context),
      comparison_(context.device(), tolerance_of(context.options.precision,
                                                 shortens_float32_products(context.device().type()))) {
  if (const Device device = context.device(); !device.is_cpu()) side_ = new_side_stream(device);
}

at::Tensor CapturedGradients::compute(const Batch& batch, bool begins_window, const SeedOf& seed_of) {
  OperatorRecorder::refuse("it trains another model");  // in a step of another trainer that is being recorded
  if (state_.optimizer->needs_closure() && !is_off_)
    give_up("the optimizer evaluates the loss several times");
  if (is_off_) return compute_eagerly(batch, begins_window, seed_of);
  if (begins_window) state_.optimizer->zero_grad();
  if (CapturedBatch* const latest = std::exchange(latest_, nullptr))
    if (const std::string reason = latest->capture_obstacle(); !reason.empty()) give_up(reason);
  if (has_changed()) start_over();
  if (is_off_ || waits_for_answer()) return compute_eagerly(batch, /*begins_window=*/false, seed_of);
  CapturedBatch* const recorded = is_off_ ? nullptr : recorded_like(batch);
  if (recorded == nullptr) return compute_eagerly(batch, /*begins_window=*/false, seed_of);
  return advance(*recorded, batch, seed_of);
}

// A model may get other layers, weights or modes at any time; its recordings are then invalid. They also
// depend on LibTorch's settings.
bool CapturedGradients::has_changed() {
  const OperatorSettings settings = operator_settings(state_.log.device().type());
  return std::exchange(settings_, settings) != settings || !fingerprint_ || !fingerprint_->holds();
}

void CapturedGradients::start_over() {
  batches_.clear();
  running_ = nullptr;
  comparison_.drop();
  fingerprint_.emplace(*state_.model);
  model_changed();
  is_cleared_.clear();
  for (const at::Tensor& parameter : fingerprint_->parameters())
    is_cleared_.push_back(std::ranges::any_of(state_.optimizer->parameters(), [&](const at::Tensor& trained) {
      return trained.is_same(parameter);
    }));
  if (++num_looks_ > kMaxLooks) return give_up("the model keeps changing");
  if (const std::string reason = fingerprint_->capture_obstacle(); !reason.empty()) give_up(reason);
}

CapturedBatch* CapturedGradients::recorded_like(const Batch& batch) {
  const auto fits = [&](const auto& recorded) { return recorded->fits(batch); };
  if (const auto found = std::ranges::find_if(batches_, fits); found != batches_.end()) return found->get();
  if (batches_.size() < kMaxLayouts)
    return batches_.emplace_back(std::make_unique<CapturedBatch>(batch, context_.options.step_kernels)).get();
  give_up("its batches have more than " + std::to_string(kMaxLayouts) + " different layouts");
  return nullptr;
}

at::Tensor CapturedGradients::advance(CapturedBatch& recorded, const Batch& batch, const SeedOf& seed_of) {
  if (running_ != nullptr && running_ != &recorded)
    std::exchange(running_, nullptr)->release(StepReplay::Memory::all);
  std::optional<SideStream> on_side;
  if (side_ && recorded.replay() == nullptr) on_side.emplace(*side_);
  if (!recorded.seed().defined()) return warm_up(recorded, batch, seed_of);
  if (recorded.replay() == nullptr && !recorded.is_recorded()) return record(recorded, batch, seed_of);
  running_ = &recorded;
  const bool is_first = recorded.replay() == nullptr;
  if (!is_first && recorded.replay()->has_lost_tensors()) {
    start_over();
    return compute_eagerly(batch, /*begins_window=*/false, seed_of);
  }
  if (!is_first && recorded.replay()->is_lent())
    return compute_eagerly(batch, /*begins_window=*/false, seed_of);
  const bool is_new_epoch = std::exchange(checked_in_epoch_, state_.progress.epoch) != state_.progress.epoch;
  if (is_first || is_new_epoch || checks_all() || ++num_unchecked_ >= kMostUnchecked) {
    num_unchecked_ = 0;
    return checked(recorded, batch, seed_of);
  }
  return replay(recorded, batch, seed_of);
}

// An autograd graph that stays alive belongs to the stream on which it was created, and a recording must not
// query that stream.
at::Tensor CapturedGradients::compute_eagerly(const Batch& batch, bool begins_window, const SeedOf& seed_of) {
  const at::Tensor loss = BatchGradients::compute(batch, begins_window, seed_of);
  return side_ ? loss.detach() : loss;
}

at::Tensor CapturedGradients::warm_up(CapturedBatch& recorded, const Batch& batch, const SeedOf& seed_of) {
  const auto before = states_of_gradients(fingerprint_->parameters());
  at::Tensor loss = forward(batch, /*begins_window=*/false);
  const bool is_forward = states_of_gradients(fingerprint_->parameters()) == before;
  const at::Tensor weight = weight_in(state_.log);
  backward(loss, seed_of(weight), weight);
  recorded.take_seed_of(loss);
  // Within an accumulation window such gradients would be added in a different order.
  if (!is_forward) give_up("its forward pass computes gradients itself");
  return side_ ? loss.detach() : loss;
}

// A replay computes the gradients of registered parameters only. Leaves that the step itself creates, also
// from its batch, are gone after it.
bool CapturedGradients::trains_unregistered(const at::Tensor& loss, const Recording& recording) const {
  return std::ranges::any_of(leaves_of(loss), [&](const at::Tensor& leaf) {
    const auto is_leaf = [&](const at::Tensor& parameter) { return parameter.is_same(leaf); };
    if (std::ranges::any_of(fingerprint_->parameters(), is_leaf)) return false;
    const auto storage = recording.storage_of(leaf);
    return !storage || (recording.storages[*storage].is_external && !recording.storages[*storage].is_known);
  });
}

BatchResults CapturedGradients::compute_apart(const Batch& batch, CapturedBatch& recorded,
                                              const SeedOf& seed_of, Recording* recording) {
  GradientsApart apart(fingerprint_->parameters());
  const MarkedRow before(state_.log);  // what callbacks have logged
  BatchResults results;
  std::optional<OperatorRecorder> recorder;
  if (recording != nullptr) recorder.emplace(*recording);
  results.loss = forward(batch, /*begins_window=*/false);
  recorder.reset();
  if (recording != nullptr && trains_unregistered(results.loss, *recording))
    recording->refuse("it computes the gradient of a tensor that is not registered in the model");
  const at::Tensor weight = weight_in(state_.log);
  const LossSeed of = seed_of(weight);
  fill_seed(recorded, results.loss, of);
  results.row = MarkedRow(state_.log, before);
  results.logged = results.row.take_tensors();
  if (recording != nullptr) {
    recording->num_forward_calls = recording->calls.size();
    recorder.emplace(*recording);
  }
  {
    const ActivityScope scope(&context_.clock, Activity::backward);
    results.loss.backward(recorded.start(weight));
  }
  recorder.reset();
  results.gradients = of.skips_backward ? apart.take() : apart.join();
  if (side_) results.loss = results.loss.detach();
  return results;
}

BatchResults CapturedGradients::compute_unseen(const Batch& batch, const CapturedBatch& recorded) {
  GradientsApart apart(fingerprint_->parameters());
  const MutedLog muted(context_.calls, context_.device());
  BatchResults results;
  results.loss = forward(batch, /*begins_window=*/false);
  const at::Tensor weight = weight_in(*context_.calls.log);
  results.row = MarkedRow(muted.log());
  results.logged = results.row.take_tensors();
  results.loss.backward(recorded.start(weight));
  results.gradients = apart.take();
  return results;
}

void CapturedGradients::fill_seed(CapturedBatch& recorded, const at::Tensor& loss, const LossSeed& of) {
  recorded.set_weight_unit(of.weight_unit);
  if (!state_.scaler && recorded.seed_factor() == of.factor) return;
  recorded.set_seed(seed(loss, of.factor), of.factor);
}

at::Tensor CapturedGradients::record(CapturedBatch& recorded, const Batch& batch, const SeedOf& seed_of) {
  if (const std::string reason = OperatorRecorder::capture_obstacle(); !reason.empty()) {
    give_up(reason, LogLevel::info);  // the process has already logged a warning
    return compute_eagerly(batch, /*begins_window=*/false, seed_of);
  }
  const BackwardOnThisThread where_it_is_recorded;
  Recording recording = recorded.begin_recording(batch, *fingerprint_, state_.log.device());
  const BatchResults results = compute_apart(batch, recorded, seed_of, &recording);
  recorded.end_recording(std::move(recording), results);
  latest_ = &recorded;
  return results.loss;
}

at::Tensor CapturedGradients::replay(CapturedBatch& recorded, const Batch& batch, const SeedOf& seed_of) {
  at::Tensor loss;
  {
    const ActivityScope scope(&context_.clock, Activity::forward);
    loss = forward_of(recorded, batch);
  }
  const ActivityScope scope(&context_.clock, Activity::backward);
  const LossSeed of = seed_of(weight_in(state_.log));
  const bool is_alone = batches_per_step(context_.options) == 1;
  if (of.skips_backward) return is_alone ? loss : loss.clone();
  fill_seed(recorded, loss, of);
  add_gradients(recorded.backward(), fingerprint_->parameters(),
                [&](std::size_t i) { return is_alone && is_cleared_[i]; });
  return is_alone ? loss : loss.clone();
}

// For a label that is not a class, the model's own error says more than the operator's: the step is run again
// for it, without leaving anything behind.
at::Tensor CapturedGradients::forward_of(CapturedBatch& recorded, const Batch& batch) {
  try {
    return recorded.forward(batch, state_.log);
  } catch (const c10::Error& error) {
    if (!label_out_of_range(error)) throw;
    const RandomStateGuard random_state_guard(state_.log.device());
    const TensorSnapshot buffers(fingerprint_->buffers());
    const MutedLog muted(context_.calls, context_.device());
    forward(batch, /*begins_window=*/false);
    throw;
  }
}

// Includes all buffers, because some operators write to buffers without declaring it.
StepComparison::Run CapturedGradients::run_of(const CapturedBatch& recorded,
                                              std::vector<at::Tensor> results) const {
  StepComparison::Run run{.results = std::move(results),
                          .changes = recorded.replay()->changed(),
                          .num_gradients = fingerprint_->parameters().size(),
                          .random = random_state(state_.log.device())};
  std::ranges::copy_if(fingerprint_->buffers(), std::back_inserter(run.changes),
                       [&](const at::Tensor& buffer) { return buffer.device() == state_.log.device(); });
  return run;
}

// Keeps the results and changes of the replay for the comparison, and reverts the changes.
std::string CapturedGradients::try_replay(CapturedBatch& recorded, const Batch& batch,
                                          const SeedOf& seed_of) {
  const Device device = state_.log.device();
  const RandomStateGuard random_state_guard(device);
  const TensorSnapshot buffers(fingerprint_->buffers());
  std::string failure;
  try {
    if (recorded.replay() == nullptr) {
      const RandomStateGuard of_first_run(device);
      const TensorSnapshot before_first_run(fingerprint_->buffers());
      recorded.make_replay(batch, [&](const Batch& given) { return compute_unseen(given, recorded); });
    }
    const TensorSnapshot changed(recorded.replay()->changed());
    EpochLog log(device, /*capacity=*/1);
    const at::Tensor loss = recorded.forward(batch, log);
    fill_seed(recorded, loss, seed_of(weight_in(log)));
    recorded.backward();
    comparison_.keep(run_of(recorded, recorded.replay()->outputs()));
  } catch (const c10::Error& error) {
    failure = error.what_without_backtrace();
  } catch (const std::exception& error) {  // thrown by the model while a device records
    failure = error.what();
  }
  // The eager step that follows needs as much memory as a replay.
  recorded.release(StepReplay::Memory::all);
  return failure.substr(0, failure.find('\n'));
}

at::Tensor CapturedGradients::checked(CapturedBatch& recorded, const Batch& batch, const SeedOf& seed_of) {
  const std::string failure = try_replay(recorded, batch, seed_of);
  const BatchResults results = compute_apart(batch, recorded, seed_of, nullptr);
  if (!failure.empty()) {
    give_up("a replay failed: " + failure);
    return results.loss;
  }
  comparison_.compare(run_of(recorded, results.all()), recorded.row() == results.row);
  waits_for_answer();
  return results.loss;
}

// On a device the answer arrives later; until then no replay is used.
bool CapturedGradients::waits_for_answer() {
  if (!comparison_.is_under_way()) return false;
  const std::optional<bool> is_same = comparison_.answer();
  if (!is_same || *is_same) return !is_same;
  log_warning(
      std::string("step_graph: a captured step now computes something different, so replay is turned off. ") +
      (checks_all() ? "The results of the eager step were used. "
                    : "Steps replayed since the last check (at the start of the epoch, or up to 1,000 steps "
                      "ago) may be wrong. ") +
      "A model whose steps differ must call changed() when they do, or not return true from "
      "has_static_graph()");
  give_up("a replay differs from the eager step");
  return false;
}

void CapturedGradients::end_epoch() {
  BatchGradients::end_epoch();
  if (running_ != nullptr) running_->release(StepReplay::Memory::intermediate);
}

void CapturedGradients::give_up(const std::string& reason) {
  give_up(reason, context_.options.step_graph == "on" ? LogLevel::warning : LogLevel::info);
}

void CapturedGradients::give_up(const std::string& reason, LogLevel level) {
  is_off_ = true;
  batches_.clear();
  comparison_.drop();
  latest_ = running_ = nullptr;
  context_.capture = CaptureMode::eager(reason);
  log(level, "step_graph: steps are not captured: " + reason);
}

// --- The interface of the module ---

CaptureMode capture_mode(const StepContext& context) {
  const TrainerOptions& options = context.options;
  const Module& model = *context.state.model;
  if (options.step_graph == "off") return CaptureMode::eager("step_graph is off");
  if (model.updates_manually()) return CaptureMode::eager("a ManualModule is never captured");
  if (options.sync_batchnorm && context.group() != nullptr)
    return CaptureMode::eager("with sync_batchnorm the ranks communicate within a step");
  if (options.step_graph != "on" && !model.has_static_graph())
    return CaptureMode::eager("has_static_graph() of the model is false");
  if (const Device device = context.device(); !device.is_cpu())
    if (const std::string reason = why_no_graph(device); !reason.empty())
      return CaptureMode::eager("capture needs device graphs, but " + reason);
  if (options.detect_anomaly) return CaptureMode::eager("detect_anomaly inspects each operator");
  if (options.profile) return CaptureMode::eager("profile inspects each operator");
  return CaptureMode::captured();
}

std::unique_ptr<BatchGradients> capture_gradients(const StepContext& context) {
  return std::make_unique<CapturedGradients>(context);
}

std::unique_ptr<UpdateCapture> capture_update(const StepContext& context) {
  if (context.device().is_cpu()) return nullptr;
  return std::make_unique<CapturedUpdate>(context.device(), context.state.log);
}

}  // namespace kindling
