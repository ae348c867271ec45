#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "graph/device/device_graph.h"
#include "graph/recording/recording.h"
#include "graph/recording/step_replay.h"
#include "graph/recording/watched_memory.h"

namespace kindling {

// Captured work on a device that has graphs: the work is queued once more and captured as a device graph, and
// each run launches that graph. The graph has separate memory for what the work allocates.
class DeviceReplay : public StepReplay {
 public:
  // Computes results from inputs.
  using Work = std::function<std::vector<at::Tensor>(std::span<const at::Tensor> inputs)>;

  // `inputs` are copied into memory of the replay before each run. The work is captured on the calling
  // thread's current stream and not executed. Throws what the work throws, and c10::Error if it cannot be
  // replayed.
  DeviceReplay(const Recording& recording, std::span<const at::Tensor> inputs, const Work& work);

  void set_inputs(std::span<const at::Tensor> inputs) override;
  void run_forward() override {}
  void run_backward() override { graph_->replay(); }

  const std::vector<at::Tensor>& outputs() const noexcept override { return outputs_; }
  const std::vector<at::Tensor>& changed() const noexcept override { return changed_; }
  bool is_lent() const override;
  bool has_lost_tensors() const override { return watched_.is_lost(); }
  // A graph refers to its memory by address, so it keeps it.
  void release(Memory) override {}

 private:
  WatchedMemory watched_;
  std::vector<at::Tensor> inputs_, outputs_, changed_;
  std::vector<std::size_t> own_uses_;   // uses of the outputs by the replay itself
  std::unique_ptr<DeviceGraph> graph_;  // destroyed before the memory that it uses
};

}  // namespace kindling
