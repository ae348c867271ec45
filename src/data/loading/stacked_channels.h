#pragma once

#include <cstddef>
#include <vector>

#include "data/loading/array_source.h"
#include "kindling/base/export.h"

namespace kindling {

// Stacks arrays of equal types and sizes as channels, a new dimension after the first `num_row_dims` ones:
// [samples, …] becomes [samples, channels, …]. The result has all names, and stays in the
// files if one of them does. Throws DataError that names an array that differs from the first one.
KINDLING_API SourceArray stacked_channels(const std::vector<SourceArray>& arrays, std::size_t num_row_dims);

}  // namespace kindling
