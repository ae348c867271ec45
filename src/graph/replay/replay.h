#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "graph/nodes/replay_node.h"
#include "graph/recording/recording.h"
#include "graph/recording/step_replay.h"
#include "graph/recording/watched_memory.h"
#include "graph/replay/replay_builder.h"

namespace kindling {

// Replays captured work on the CPU, operator by operator: operators use the same tensors again, views cost
// nothing, and intermediate results share one block of memory, planned by the time for which each is needed.
// Results are bit-identical to those of the work itself; its random numbers come from the same generators.
class Replay : public StepReplay {
 public:
  // Makes a first run, which finds the operators that cannot write where they should and the native kernels
  // whose results are not bit-identical. Throws c10::Error if the work cannot be replayed.
  Replay(const Recording& recording, std::span<const at::Tensor> inputs,
         NativeKernels kernels = NativeKernels::automatic);
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  // Reads them without a copy.
  void set_inputs(std::span<const at::Tensor> inputs) override;
  void run_forward() override;
  void run_backward() override;

  const std::vector<at::Tensor>& outputs() const noexcept override { return outputs_; }
  const std::vector<at::Tensor>& changed() const noexcept override { return changed_; }
  bool is_lent() const override;
  bool has_lost_tensors() const override { return watched_.is_lost(); }
  void release(Memory memory) override;

  // The memory of intermediate results.
  std::size_t num_bytes() const noexcept { return num_bytes_; }
  std::size_t num_nodes() const noexcept { return nodes_.size(); }
  // Nodes that call none of LibTorch's operators.
  std::size_t num_native_kernels() const noexcept { return num_native_kernels_; }

 private:
  void add_inputs(const ReplayBuilder& builder);
  void add_outputs(ReplayBuilder& builder);
  void add_nodes(ReplayBuilder& builder);
  std::vector<bool> plan(const ReplayBuilder& builder,
                         const std::vector<ReplayBuilder::Result>& intermediates,
                         std::vector<bool> comes_alone);
  void ensure_memory();
  std::vector<ReplayBuilder::Result> add_late_outputs(const ReplayBuilder& builder);
  void take_output_memory();
  void run(std::size_t first, std::size_t last);

  struct Planned {
    c10::Storage storage;
    std::size_t offset;
  };
  struct Input {
    std::size_t number;
    c10::Storage storage;
  };
  std::vector<std::unique_ptr<ReplayNode>> nodes_;
  std::size_t num_forward_ = 0;  // nodes
  std::vector<Planned> planned_;
  std::vector<Input> inputs_;
  std::vector<at::Tensor> outputs_, changed_;
  // The memory of outputs that a run allocates: at its beginning, or, for large results of the backward,
  // just before that writes to them.
  std::vector<c10::Storage> own_outputs_, late_outputs_;
  std::vector<std::size_t> own_uses_;  // uses of the outputs by the replay itself
  WatchedMemory watched_;
  std::size_t num_bytes_ = 0, num_native_kernels_ = 0;
  at::DataPtr memory_;
};

}  // namespace kindling
