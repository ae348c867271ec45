#pragma once

#include "cli/config/run_config.h"
#include "kindling/nn/module.h"
#include "kindling/optim/optimizer_factory.h"

namespace kindling {

// What a new run starts from, before there is a folder of it. Throws ConfigError and CheckpointError.
void start_from_files(const RunConfig& config, Module& model);

// An optimizer that begins with Python's state, where one is asked for.
OptimizerFactory with_start(const OptimizerFactory& make, const OptimizerStartOptions& start);

}  // namespace kindling
