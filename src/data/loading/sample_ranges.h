#pragma once

#include <array>
#include <cstdint>

#include "kindling/data/data_module.h"
#include "kindling/data/split.h"

namespace kindling {

// Throws ConfigError unless 0 <= first < end <= num_samples. `place` is the key of the range.
void require_range(const std::array<std::int64_t, 2>& range, std::int64_t num_samples, const char* place);

// Returns the samples in the ranges `val` (absent: none) and `train` (absent: all others) of a data set
// without a split. Throws ConfigError for ranges that overlap or are not within the samples, and where no
// sample is left for training.
SplitIndices samples_in_ranges(std::int64_t num_samples, const DataOptions& options);

}  // namespace kindling
