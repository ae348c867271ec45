#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "distributed/shard_streams.h"
#include "kindling/distributed/process_group.h"
#include "kindling/optim/optimizer.h"
#include "training/state/train_state.h"

namespace kindling {

// A process's part of a global batch that is cut into shards: each with its own random numbers, from the same
// buffers, its gradients added to those of the others in a tree that hangs on the number of shards alone, so
// that any number of processes comes to the same bits. In a window of several batches each shard first adds
// up its own of one batch after the other.
class GradientShards {
 public:
  // `group` nullptr: this process alone.
  GradientShards(TrainState& state, std::int64_t num_batches, ProcessGroup* group)
      : state_(state), num_batches_(num_batches), group_(group) {}

  // One shard after the other, one batch after the other: while it lives, the i-th of the window is at work.
  class Scope {
   public:
    Scope(GradientShards& shards, std::int64_t i);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    GradientShards& shards_;
    const std::int64_t shard_;
    ShardStreams::Scope random_;
  };

  // Takes the gradients that the latest shard has left at the optimizer's parameters.
  void take(const Optimizer& optimizer);
  // Their sum becomes the parameters' gradients; buffers are those that the first shard has left.
  void give(const Optimizer& optimizer);

 private:
  using Gradients = std::vector<at::Tensor>;  // undefined ones, too
  static void add(Gradients& to, Gradients from);
  void begin_window();
  void begin_batch();
  void put_into_tree(Gradients sum);

  TrainState& state_;
  const std::int64_t num_batches_;
  ProcessGroup* const group_;
  std::int64_t shard_ = 0, batch_ = 0;  // at work, in the window
  std::vector<at::Tensor> buffers_, at_start_, of_first_;
  std::vector<std::optional<Gradients>> sums_;    // by shard, of the window's batches up to here
  std::vector<std::optional<Gradients>> levels_;  // of the tree: sums of 1, 2, 4, … shards
};

}  // namespace kindling
