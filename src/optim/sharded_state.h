#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "kindling/distributed/process_group.h"
#include "kindling/optim/optimizer.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// The state of an optimizer as checkpoints have it: the same for any number of ranks that it is sharded over
// (TrainerOptions::shard_optimizer_state). `shards` is the group of these ranks; nullptr: it is not sharded.

// Returns the rank that owns each of the parameters: the largest first, each to the rank with the smallest
// load so far. The result depends on their sizes alone.
std::vector<std::int64_t> owners_of(std::span<const at::Tensor> parameters, std::int64_t num_processes);

// Returns the state of all parameters on rank 0, and that of their own parameters on the others. Collective.
StateDict saved_state(const Optimizer& optimizer, ProcessGroup* shards);
// Loads what this rank needs of a saved state; throws what Optimizer::load_state_dict() does.
void load_saved_state(Optimizer& optimizer, const StateDict& saved, const ProcessGroup* shards);

// Drops the state of parameters that other ranks own.
void drop_foreign_state(Optimizer& optimizer, const ProcessGroup& shards);
// Throws ConfigError for a rule whose state cannot be sharded.
void require_per_parameter(const Optimizer& optimizer);

}  // namespace kindling
