#pragma once

#include <cstdint>

#include "kindling/data/data_module.h"
#include "kindling/tensors/batch.h"

namespace kindling {

// Returns the first batch in the order of the data as the loader returns it, before
// on_after_batch_transfer(): of the data for prediction, or else for training.
KINDLING_API Batch first_raw_batch(DataModule& data);

// Returns a batch of as many samples as requested: the first ones, repeatedly if there are fewer. Tensors
// without a row per sample stay as they are.
KINDLING_API Batch with_samples(Batch batch, std::int64_t count);

}  // namespace kindling
