#pragma once

#include "kindling/distributed/process_group.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// The per-rank part of a saved run: the rows of its log, its random state, and state that depends on the
// rank's samples. The rest of a run is the same on all ranks and saved once.

// Returns the state to save, gathered from the states of all ranks: that of rank 0 with the per-rank parts of
// the others. The same on all ranks, except for sharded optimizer state.
StateDict gather_state(const StateDict& own, ProcessGroup& group);

// Returns the state that this rank resumes with (nullptr: a single process). A rank that the saved run did
// not have gets the state of rank 0, random state included. Throws CheckpointError for a run that was saved
// mid-epoch with another number of ranks.
StateDict own_state(const StateDict& saved, const ProcessGroup* group);
// True if the saved run had this rank.
bool has_own_state(const StateDict& saved, const ProcessGroup* group);

}  // namespace kindling
