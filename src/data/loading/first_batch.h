#pragma once

#include "kindling/data/data_module.h"
#include "kindling/tensors/batch.h"

namespace kindling {

// Returns the first batch in the order of the data as the loader returns it, before
// on_after_batch_transfer(): of the data for prediction, or else for training.
KINDLING_API Batch first_raw_batch(DataModule& data);

}  // namespace kindling
