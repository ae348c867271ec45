#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "kindling/device/device.h"
#include "kindling/distributed/process_group.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// The random numbers of gradient shards: one stream for each shard of the global batch, whichever rank
// computes it. Each rank holds those of its own shards.
class ShardStreams {
 public:
  // Starts the streams of `num_shards` shards over all ranks, derived from the current random state of rank
  // 0. `group` nullptr: all belong to this process.
  void start(Device device, std::int64_t num_shards, ProcessGroup* group);
  bool are_used() const noexcept { return !states_.empty(); }
  std::int64_t size() const noexcept { return static_cast<std::int64_t>(states_.size()); }

  // For its lifetime, LibTorch's generators use the stream of this rank's i-th shard.
  class Scope {
   public:
    Scope(ShardStreams& streams, std::int64_t i);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    ShardStreams& streams_;
    std::size_t i_;
    std::vector<at::Tensor> of_process_;
  };

  // A saved state contains all shards.
  void save(StateDict& state) const;
  // Loads those of its own shards; throws CheckpointError if they are missing.
  void load(const StateDict& state);

 private:
  std::string name_of(std::size_t i, std::size_t generator) const;

  Device device_ = cpu();
  std::int64_t first_ = 0;                       // shard of this process
  std::vector<std::vector<at::Tensor>> states_;  // by shard, then by generator
};

}  // namespace kindling
