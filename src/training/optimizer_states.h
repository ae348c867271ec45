#pragma once

#include "kindling/distributed/process_group.h"
#include "kindling/optim/optimizer.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/trainer_options.h"

namespace kindling {

// The state of an optimizer as a training saves and loads it: the same, however many processes have shared it
// out (TrainerOptions::shard_optimizer_state).

// Of all parameters in process 0; in the others that of their own parameters. All processes call it.
StateDict saved_state(const Optimizer& optimizer, const TrainerOptions& options);
// Loads what this process needs of a saved one; throws what Optimizer::load_state_dict() does.
void load_saved_state(Optimizer& optimizer, const StateDict& saved, const TrainerOptions& options);

// Forgets the state of parameters that belong to other processes.
void keep_own_share(Optimizer& optimizer, const ProcessGroup& group);
// Throws ConfigError for a rule whose state cannot be shared out.
void require_per_parameter(const Optimizer& optimizer);

}  // namespace kindling
