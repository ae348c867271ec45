#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "graph/recording.h"
#include "graph/replay_builder.h"
#include "graph/replay_node.h"

namespace kindling {

// Recorded work, made again with other inputs: operators find their tensors where they have been, views cost
// nothing, and intermediate results share one block of memory by the time for which they are needed. Results
// are those of the work itself to the last bit; its random numbers come from the same generators.
class Replay {
 public:
  // Makes a first run, which finds out the operators that cannot write where they should. Throws c10::Error
  // when the work cannot be replayed.
  Replay(const Recording& recording, std::span<const at::Tensor> inputs);
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  // The first of the inputs, laid out as the recorded ones; they are read where they are. The others stay.
  void set_inputs(std::span<const at::Tensor> inputs);
  void run_forward();
  void run_backward();

  // Where each run leaves its results; they stay there until the next one.
  const std::vector<at::Tensor>& outputs() const noexcept { return outputs_; }
  // Memory that has been there before and that a run changes, such as running statistics; uint8.
  const std::vector<at::Tensor>& changed() const noexcept { return changed_; }
  // Of intermediate results.
  std::size_t num_bytes() const noexcept { return num_bytes_; }
  std::size_t num_nodes() const noexcept { return nodes_.size(); }
  // Whether somebody else holds a result of the latest run, which another run would change.
  bool is_lent() const;
  // Whether a tensor that the work reads, and that was not known to the recording, has been let go of by all
  // others or has got other memory: then the work reads something else now.
  bool has_lost_tensors() const;
  // Gives memory back until the next run: that of intermediate results, or of results that nobody holds, too.
  enum class Memory { intermediate, all };
  void release(Memory memory);

 private:
  void add_inputs(const ReplayBuilder& builder);
  void add_outputs(ReplayBuilder& builder);
  void add_nodes(ReplayBuilder& builder);
  std::vector<bool> plan(const ReplayBuilder& builder,
                         const std::vector<ReplayBuilder::Intermediate>& intermediates,
                         std::vector<bool> comes_alone);
  void ensure_memory();
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
  std::vector<c10::Storage> own_outputs_;  // the memory of those that a run makes
  std::vector<std::size_t> own_uses_;      // of the outputs, by the replay itself
  struct Watched {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    const void* data;
  };
  std::vector<Watched> watched_;
  std::size_t num_bytes_ = 0;
  at::DataPtr memory_;
};

}  // namespace kindling
