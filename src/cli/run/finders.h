#pragma once

#include <memory>

#include "cli/config/run_config.h"
#include "cli/run/run_folder.h"
#include "kindling/data/data_module.h"
#include "kindling/training/stop_token.h"
#include "kindling/training/trainer_options.h"

namespace kindling {

// What the searches before a fit work with.
struct FinderInputs {
  RunConfig& config;
  const RunFolder& folder;
  const TrainerOptions& trainer;  // of the fit
  const std::shared_ptr<Module>& model;
  std::shared_ptr<DataModule>& data;  // made anew for another batch size
  StopToken stop;
  bool quiet = false;
};

// Does what [batch_finder] and [lr_finder] ask for, in this order. Afterwards the config, which is also that
// of the run's folder, has what has been found, and searches no more. What a stop ends has found nothing.
void run_finders(const FinderInputs& in);

// Measures whether operators are faster with one thread or with all, unless trainer.num_threads or
// OMP_NUM_THREADS says how many; afterwards the config does.
void choose_threads(const FinderInputs& in);

}  // namespace kindling
