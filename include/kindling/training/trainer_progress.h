#pragma once

#include <cstdint>

#include "kindling/loggers/progress.h"

namespace kindling {

// The position of a run and its timing.
struct TrainerProgress : Progress {
  std::int64_t num_train_batches = 0;    // per epoch; 0: unknown (a custom training loop)
  std::int64_t accumulated_batches = 0;  // of the current optimizer step; 0: between two steps
  double epoch_seconds = 0;              // since the start of this epoch
  double data_wait_seconds = 0;          // part of epoch_seconds spent waiting for batches
};

}  // namespace kindling
