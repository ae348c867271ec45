#pragma once

#include "kindling/distributed/process_group.h"
#include "kindling/training/replay.h"

namespace kindling {

// Adds the batches of the other ranks on rank 0. Collective.
void gather_batches(ReplayedStep& step, ProcessGroup& group);

}  // namespace kindling
