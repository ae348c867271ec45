#pragma once

#include <cstdint>

#include "kindling/loggers/progress.h"

namespace kindling {

// Where a training is, and how it goes.
struct TrainerProgress : Progress {
  std::int64_t num_train_batches = 0;    // of an epoch; 0: unknown (an own loop)
  std::int64_t accumulated_batches = 0;  // of the optimizer step under way; 0: between two steps
  double epoch_seconds = 0;              // since this epoch began
  double data_wait_seconds = 0;          // of them, spent getting batches
};

}  // namespace kindling
