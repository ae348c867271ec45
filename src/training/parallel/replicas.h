#pragma once

#include "kindling/distributed/process_group.h"
#include "kindling/nn/module.h"
#include "kindling/training/trainer_options.h"
#include "training/batch_source.h"

namespace kindling {

// Throws ConfigError for a lazy layer that has no parameters yet: processes must begin with the same ones.
void require_shapes(Module& model);

// Throws DistributedError, in all processes, for options of the training or tensors of the model that differ
// between them. Then they have the parameters and buffers of process 0. See require_shapes().
void start_together(ProcessGroup& group, Module& model, const TrainerOptions& options);

// The same for what the processes have shares of; nullptr: no validation.
void require_same_data(ProcessGroup& group, const BatchSource& train, const BatchSource* validation);

}  // namespace kindling
