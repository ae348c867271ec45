#pragma once

#include "kindling/distributed/process_group.h"
#include "kindling/nn/module.h"

namespace kindling {

// Throws DistributedError in all processes that names the first parameter whose bits are others in one of
// them than in process 0. All of them call it; the host waits for the device.
void require_replicas(ProcessGroup& group, const Module& model, std::int64_t global_step);

}  // namespace kindling
