#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kindling/distributed/process_group.h"
#include "kindling/nn/module.h"
#include "kindling/training/trainer_options.h"
#include "training/state/batch_source.h"

namespace kindling {

// Data-parallel training keeps one replica of the model per rank. These functions start the replicas with the
// same values and verify that they stay equal. All but the first are collective and throw DistributedError on
// all ranks.

// Throws ConfigError for a lazy layer that has no parameters yet: replicas must start with the same ones.
void require_shapes(Module& model);
// Copies the parameters and buffers of rank 0 to all ranks. Throws for options or tensors that differ between
// ranks; see require_shapes().
void sync_initial_state(ProcessGroup& group, Module& model, const TrainerOptions& options);
// Throws for options or data that differ between ranks.
void require_same_data(ProcessGroup& group, const TrainerOptions& options, const BatchSource& train,
                       const std::vector<ValidationSource>& validation);
// Throws on all ranks if the call throws on one of them, so that none waits for the others in vain: Error
// with what cannot be done. Calls it alone without a group.
void call_on_all(ProcessGroup* group, const std::string& what, const std::function<void()>& call);
// Throws for the first parameter whose bits differ between ranks. The host waits for the device.
void verify_replicas(ProcessGroup& group, const Module& model, std::int64_t global_step);

}  // namespace kindling
