#pragma once

#include <cstdint>

#include "data/loading/array_source.h"
#include "data/loading/stored_dataset.h"

// Arrays of files as the tensors of batches. Those in a file are converted when they are read.
namespace kindling {

// float64 stays only if it will be scaled, which rounds it; otherwise it becomes float32. Throws DataError
// for complex numbers, an array without values, and numbers that float32 cannot hold.
StoredDataset::Column input_column(const SourceArray& array, bool will_be_scaled);

// Integers become int64, and [samples, 1] of them [samples]; other numbers float32, and [samples] of them
// [samples, 1]. Throws DataError for complex numbers and another number of samples.
StoredDataset::Column label_column(const SourceArray& array, std::int64_t num_samples);

}  // namespace kindling
