#pragma once

#include <memory>

#include "cli/config/run_config.h"
#include "kindling/data/data_module.h"
#include "kindling/training/stop_token.h"
#include "kindling/training/trainer_options.h"
#include "runs/run_folder.h"

namespace kindling {

// The inputs of the searches before a fit.
struct FinderInputs {
  RunConfig& config;
  const FitFolder& folder;
  const TrainerOptions& trainer;  // of the fit
  const std::shared_ptr<Module>& model;
  std::shared_ptr<DataModule>& data;  // created again for another batch size
  StopToken stop;
  bool quiet = false;
};

// Runs the searches of [batch_finder] and [lr_finder], in this order, and writes their results into the
// config, also in the run directory; the config then requests no search. A stopped search has no result.
void run_finders(const FinderInputs& in);

// Measures whether operators are faster with one thread or with all, and writes the result into the config.
// Does nothing if trainer.num_threads or OMP_NUM_THREADS is set.
void choose_threads(const FinderInputs& in);

}  // namespace kindling
