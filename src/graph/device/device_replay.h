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

// Recorded work on a device that has graphs: it is given once more to the device, which notes what it is
// given as a graph, and a run is one start of that. The graph has memory of its own for what the work takes.
class DeviceReplay : public StepReplay {
 public:
  // Given inputs, it gives results.
  using Work = std::function<std::vector<at::Tensor>(std::span<const at::Tensor> inputs)>;

  // `inputs` are copied into memory of the replay's before each run. The work is given to the calling
  // thread's current stream, and none of it is done. Throws what the work throws, and c10::Error when it
  // cannot be replayed.
  DeviceReplay(const Recording& recording, std::span<const at::Tensor> inputs, const Work& work);

  void set_inputs(std::span<const at::Tensor> inputs) override;
  void run_forward() override {}
  void run_backward() override { graph_->replay(); }

  const std::vector<at::Tensor>& outputs() const noexcept override { return outputs_; }
  const std::vector<at::Tensor>& changed() const noexcept override { return changed_; }
  bool is_lent() const override;
  bool has_lost_tensors() const override { return watched_.is_lost(); }
  // A graph knows its memory by address and keeps it.
  void release(Memory) override {}

 private:
  WatchedMemory watched_;
  std::vector<at::Tensor> inputs_, outputs_, changed_;
  std::vector<std::size_t> own_uses_;   // of the outputs, by the replay itself
  std::unique_ptr<DeviceGraph> graph_;  // goes before the memory that it works on
};

}  // namespace kindling
