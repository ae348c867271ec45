#pragma once

#include "cli/config/run_config.h"
#include "cli/run/weights.h"
#include "kindling/nn/module.h"
#include "kindling/optim/optimizer_factory.h"

namespace kindling {

// Loads the files that a new run starts from, before it has a directory. Returns the source of the weights,
// whose file is empty for the model's initial weights. Throws ConfigError and CheckpointError.
WeightsSource start_from_files(const RunConfig& config, Module& model);

// Returns a factory whose optimizers start from a PyTorch state, if one is requested.
OptimizerFactory with_start(const OptimizerFactory& make, const OptimizerStartOptions& start);

}  // namespace kindling
