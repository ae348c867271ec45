#pragma once

#include "kindling/data/data_module.h"

namespace kindling {

// Reads all samples of the prepared data and prints counts, ranges and classes. Returns the exit code: that
// of a DataError if a sample is broken.
int check_data(DataModule& data, bool as_json);

}  // namespace kindling
