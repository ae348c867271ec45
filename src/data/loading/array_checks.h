#pragma once

#include "kindling/data/array_data_options.h"
#include "kindling/data/data_module.h"

namespace kindling {

// Throws ConfigError for options of ArrayData that are wrong by themselves or contradict each other.
void check_array_options(const ArrayDataOptions& options, const DataOptions& shared);

}  // namespace kindling
