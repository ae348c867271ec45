#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "kindling/optim/optimizer.h"
#include "training/shard_streams.h"
#include "training/train_state.h"

namespace kindling {

// A process's part of a global batch that is cut into shards: each with its own random numbers, from the same
// buffers, its gradients added to those of the others in a tree that hangs on the number of shards alone, so
// that any number of processes comes to the same bits.
class GradientShards {
 public:
  explicit GradientShards(TrainState& state) : state_(state) {}

  // One shard after the other: while it lives, the i-th of this process is at work.
  class Scope {
   public:
    Scope(GradientShards& shards, std::int64_t i);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    GradientShards& shards_;
    const std::int64_t i_;
    ShardStreams::Scope random_;
  };

  // Takes the gradients that the shard has left at the optimizer's parameters.
  void take(const Optimizer& optimizer);
  // Their sum becomes the parameters' gradients; buffers are those that the first shard has left.
  void give(const Optimizer& optimizer);

 private:
  using Gradients = std::vector<at::Tensor>;  // undefined ones, too
  static void add(Gradients& to, Gradients from);

  TrainState& state_;
  std::vector<at::Tensor> buffers_, at_start_, of_first_;
  std::vector<std::optional<Gradients>> levels_;  // of the tree: sums of 1, 2, 4, … shards
};

}  // namespace kindling
