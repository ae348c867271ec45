#pragma once

#include <cstdint>

#include "kindling/data/data_module.h"
#include "kindling/data/split.h"

namespace kindling {

// Returns the samples in the ranges `train` (absent: all) and `val` (absent: none) of a data set without a
// split. Throws ConfigError for a range that is not within the samples.
SplitIndices samples_in_ranges(std::int64_t num_samples, const DataOptions& options);

}  // namespace kindling
