#include "training/capture/captured_batch.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <utility>

#include "graph/device/device_replay.h"
#include "graph/replay/replay.h"
#include "kindling/base/log.h"

namespace kindling {
namespace {

bool same_structure(const std::shared_ptr<const BatchStructure>& one,
                    const std::shared_ptr<const BatchStructure>& other) {
  if (one == other) return true;
  return one && other && one->kind == other->kind && one->names == other->names &&
         one->on_host == other->on_host &&
         std::ranges::equal(one->parts, other->parts,
                            [](const auto& a, const auto& b) { return same_structure(a, b); });
}

at::IntArrayRef strides_of(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided ? tensor.strides() : at::IntArrayRef();
}

// Returns a tensor with the same memory but without the autograd history, which would keep other tensors
// alive.
at::Tensor without_history(const at::Tensor& tensor) { return tensor.defined() ? tensor.detach() : tensor; }

std::unique_ptr<Replay> replay_of(const Recording& recording, const std::vector<at::Tensor>& inputs,
                                  const std::string& step_kernels) {
  const auto kernels = step_kernels == "off" ? NativeKernels::off : NativeKernels::automatic;
  auto replay = std::make_unique<Replay>(recording, inputs, kernels);
  log(LogLevel::debug, "step_graph: steps are replayed with " + std::to_string(replay->num_native_kernels()) +
                           " native kernels (step_kernels = " + step_kernels + ")");
  return replay;
}

}  // namespace

BatchLayout::BatchLayout(const Batch& batch) : structure_(batch.structure()) {
  for (const at::Tensor& tensor : batch.tensors())
    leaves_.push_back({tensor.sizes().vec(), strides_of(tensor).vec(), tensor.scalar_type(), tensor.device(),
                       tensor.layout(), tensor.requires_grad()});
}

bool BatchLayout::fits(const Batch& batch) const {
  return std::ranges::equal(leaves_, batch.tensors(),
                            [](const Leaf& leaf, const at::Tensor& tensor) {
                              return tensor.layout() == leaf.layout && tensor.sizes() == leaf.sizes &&
                                     strides_of(tensor) == leaf.strides &&
                                     tensor.scalar_type() == leaf.dtype && tensor.device() == leaf.device &&
                                     tensor.requires_grad() == leaf.requires_grad;
                            }) &&
         same_structure(structure_, batch.structure());
}

std::vector<at::Tensor> BatchResults::all() const {
  std::vector<at::Tensor> all{without_history(loss)};
  std::ranges::transform(gradients, std::back_inserter(all), without_history);
  std::ranges::transform(logged, std::back_inserter(all), without_history);
  return all;
}

void CapturedBatch::take_seed_of(const at::Tensor& loss) {
  seed_ = at::empty_like(loss.detach());
  if (!seed_.is_cpu()) unit_ = at::ones({}, at::dtype(at::kFloat).device(seed_.device()));
}

void CapturedBatch::set_weight_unit(double unit) {
  if (unit == weight_unit_) return;
  weight_unit_ = unit;
  if (unit != 0) unit_.fill_(unit);
}

at::Tensor CapturedBatch::start(const at::Tensor& weight) const {
  if (weight_unit_ == 0) return seed_;
  return seed_ * weight.div(unit_).to(seed_.scalar_type()).view(seed_.sizes());
}

void CapturedBatch::set_seed(const at::Tensor& value, double factor) {
  const at::NoGradGuard no_grad;
  seed_.copy_(value);
  seed_factor_ = factor;
}

std::vector<at::Tensor> CapturedBatch::inputs(const Batch& batch) const {
  std::vector<at::Tensor> inputs(batch.tensors().begin(), batch.tensors().end());
  inputs.push_back(seed_);
  if (unit_.defined()) inputs.push_back(unit_);
  return inputs;
}

Recording CapturedBatch::begin_recording(const Batch& batch, const ModelFingerprint& look,
                                         Device device) const {
  Recording recording(device);
  recording.add_inputs(inputs(batch));
  for (const at::Tensor& tensor : batch.tensors())
    if (tensor.requires_grad()) recording.refuse("its batch requires gradients");
  for (std::size_t i = 0; i < batch.tensors().size(); ++i)
    if (batch.stays_on_host(i)) recording.refuse("the host reads a tensor of its batch");
  for (const at::Tensor& parameter : look.parameters()) recording.know(parameter);
  for (const at::Tensor& buffer : look.buffers()) recording.know(buffer);
  return recording;
}

void CapturedBatch::end_recording(Recording recording, const BatchResults& results) {
  for (const at::Tensor& gradient : results.gradients) {
    const auto storage = recording.storage_of(gradient);
    if (gradient.defined() && (!storage || recording.storages[*storage].is_external))
      recording.refuse("it does not compute one of the gradients");
  }
  recording.add_outputs(results.all());
  recording.look_for_owners();
  former_row_ = recordings_.empty() ? std::nullopt : std::optional(row_);
  row_ = results.row;
  num_gradients_ = results.gradients.size();
  recordings_.push_back(std::move(recording));
}

std::string CapturedBatch::capture_obstacle() {
  Recording& latest = recordings_.back();
  if (!latest.refusal.empty()) return latest.refusal;
  if (latest.keeps_more_than_outputs()) return "it keeps tensors that the next step may read";
  if (!is_recorded()) return {};
  if (row_ != *former_row_) return "what it logs varies from step to step";
  return difference(recordings_.front(), recordings_.back());
}

void CapturedBatch::make_replay(const Batch& batch, const Work& work) {
  const Recording& recording = recordings_.back();
  if (recording.device().is_cpu())
    replay_ = replay_of(recording, inputs(batch), step_kernels_);
  else
    replay_ =
        std::make_unique<DeviceReplay>(recording, batch.tensors(), [&](std::span<const at::Tensor> inputs) {
          Batch given = batch;
          std::ranges::copy(inputs, given.tensors().begin());
          const BatchResults results = work(given);
          row_ = results.row;
          return results.all();
        });
  recordings_.clear();
}

const at::Tensor& CapturedBatch::forward(const Batch& batch, EpochLog& log) {
  replay_->set_inputs(batch.tensors());  // the seed stays at its address
  replay_->run_forward();
  const std::span outputs(replay_->outputs());
  row_.mark_in(log, outputs.subspan(1 + num_gradients_));
  return outputs.front();
}

std::span<const at::Tensor> CapturedBatch::backward() {
  replay_->run_backward();
  return std::span(replay_->outputs()).subspan(1, num_gradients_);
}

}  // namespace kindling
