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

// A rank's part of a global batch that is split into shards. Each shard has its own random numbers and starts
// from the same buffers. Its gradients are added to those of the others in a tree that depends only on the
// number of shards, so the result is bit-identical for any number of ranks. In a window of several batches
// each shard first sums its own gradients over the batches.
class GradientShards {
 public:
  // `group` nullptr: a single process.
  GradientShards(TrainState& state, std::int64_t num_batches, ProcessGroup* group)
      : state_(state), num_batches_(num_batches), group_(group) {}

  // While it exists, the i-th shard of the window is active: one shard after the other, one batch after the
  // other.
  class Scope {
   public:
    Scope(GradientShards& shards, std::int64_t i);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    GradientShards& shards_;
    const std::int64_t shard_;
    ShardStreams::Scope random_;
  };

  // The weight of a loss and, for the spike test, the loss times its weight (else undefined): scalars of the
  // type in which they travel.
  struct Sums {
    at::Tensor weight, loss;
  };
  // Takes the gradients of the latest shard from the optimizer's parameters.
  void take(const Optimizer& optimizer, Sums of_loss);
  // Sets the parameters' gradients to the sum, and the buffers to those after the first shard. Returns the
  // sums, added up in the same order.
  Sums give(const Optimizer& optimizer);

 private:
  using Gradients = std::vector<at::Tensor>;  // may be undefined; those of the loss come last
  static void add(Gradients& to, Gradients from);
  void begin_window();
  void begin_batch();
  void put_into_tree(Gradients sum);

  TrainState& state_;
  const std::int64_t num_batches_;
  ProcessGroup* const group_;
  std::int64_t shard_ = 0, batch_ = 0;  // the active ones, in the window
  std::vector<at::Tensor> buffers_, at_start_, of_first_;
  std::vector<std::optional<Gradients>> sums_;    // by shard, over the window's batches so far
  std::vector<std::optional<Gradients>> levels_;  // of the tree: sums over 1, 2, 4, … shards
};

}  // namespace kindling
