#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "kindling/device/device.h"
#include "kindling/distributed/process_group.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// The random numbers of gradient shards: one stream for each shard of the global batch, whichever process
// computes it. This process holds those of its own shards.
class ShardStreams {
 public:
  // Those of `num_shards` shards over all processes, made of the random state that process 0 has now.
  // `group` nullptr: all are this process's.
  void start(Device device, std::int64_t num_shards, ProcessGroup* group);
  bool are_used() const noexcept { return !states_.empty(); }
  std::int64_t size() const noexcept { return static_cast<std::int64_t>(states_.size()); }

  // While it lives, LibTorch's generators give the numbers of the shard, the i-th one of this process.
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

  // What the names of saved states begin with, which are those of all shards.
  static constexpr const char* kPrefix = "gradient_shards.";
  void save(StateDict& state) const;
  // Those of its own shards; throws CheckpointError where there are none of them.
  void load(const StateDict& state);

 private:
  std::string name_of(std::size_t i, std::size_t generator) const;

  Device device_ = cpu();
  std::int64_t first_ = 0;                       // shard of this process
  std::vector<std::vector<at::Tensor>> states_;  // by shard, then by generator
};

}  // namespace kindling
