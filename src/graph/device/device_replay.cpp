#include "graph/device/device_replay.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>

#include "graph/device/backward_on_this_thread.h"
#include "graph/recording/operator_effects.h"
#include "tensors/tensor_snapshot.h"

namespace kindling {
namespace {

at::Tensor memory_for(const at::Tensor& input) {
  TORCH_CHECK(at::has_internal_overlap(input) == at::MemOverlap::No, "a tensor of its batch overlaps itself");
  return at::empty_strided(input.sizes(), input.strides(), input.options());
}

std::vector<at::Tensor> changed_memory(const Recording& recording) {
  std::vector<at::Tensor> changed;
  const std::vector<bool> is_written = written_storages(recording);
  for (std::size_t i = 0; i < recording.storages.size(); ++i) {
    const RecordedStorage& storage = recording.storages[i];
    if (!is_written[i] || !storage.is_external || storage.input >= 0) continue;
    const auto there = storage.name.lock();
    TORCH_CHECK(there, "a tensor that it changes no longer exists");
    changed.push_back(borrowed_bytes(*there));
  }
  return changed;
}

}  // namespace

DeviceReplay::DeviceReplay(const Recording& recording, std::span<const at::Tensor> inputs, const Work& work)
    : watched_(recording),
      changed_(changed_memory(recording)),
      graph_(make_device_graph(recording.device())) {
  std::ranges::transform(inputs, std::back_inserter(inputs_), memory_for);
  set_inputs(inputs);
  {
    const BackwardOnThisThread on_the_recorded_stream;
    graph_->record([&] { outputs_ = work(inputs_); });
  }
  std::ranges::transform(outputs_, std::back_inserter(own_uses_), num_uses);
}

void DeviceReplay::set_inputs(std::span<const at::Tensor> inputs) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs_[i].copy_(inputs[i], /*non_blocking=*/true);
}

bool DeviceReplay::is_lent() const { return !std::ranges::equal(outputs_, own_uses_, {}, num_uses); }

}  // namespace kindling
