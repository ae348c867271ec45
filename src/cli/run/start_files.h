#pragma once

#include "cli/config/run_config.h"
#include "cli/run/weights.h"
#include "kindling/nn/module.h"
#include "kindling/optim/optimizer_factory.h"

namespace kindling {

// Loads what a new run starts from, before it has a folder. Returns where the weights are from; an empty
// file: the model's own. Throws ConfigError and CheckpointError.
WeightsSource start_from_files(const RunConfig& config, Module& model);

// An optimizer that begins with Python's state, where one is asked for.
OptimizerFactory with_start(const OptimizerFactory& make, const OptimizerStartOptions& start);

}  // namespace kindling
