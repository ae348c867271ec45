#pragma once

#include "kindling/distributed/process_group.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// What a saved training has of each process: the rows of its log, its random state, the states that its own
// samples have left. The rest of a training is the same in all of them, and saved once.

// From the state of each process the one that is saved, the same everywhere but for an optimizer's state that
// is shared out: that of process 0, with the own parts of all others.
StateDict gather_state(const StateDict& own, ProcessGroup& group);

// The state that this process goes on with (nullptr: alone); one that the saved training did not have goes on
// with that of process 0, random state included. Throws CheckpointError for a training that was saved inside
// an epoch by another number of processes.
StateDict own_state(const StateDict& saved, const ProcessGroup* group);
// Whether the saved training had this process.
bool has_own_state(const StateDict& saved, const ProcessGroup* group);

}  // namespace kindling
