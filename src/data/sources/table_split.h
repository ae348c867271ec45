#pragma once

#include <string>

#include "data/sources/table_windows.h"
#include "kindling/data/data_module.h"
#include "kindling/data/split.h"

namespace kindling {

// Splits the rows of the training file, or its windows if `windows` is not nullptr. Without a split in the
// options, DataOptions::train and val are ranges of rows; a window belongs to the row that it predicts. No
// training window has a row that a validation window predicts. Throws ConfigError and DataError.
SplitIndices split_samples(const Table& table, const TableSchema& schema, const TableDataOptions& options,
                           const DataOptions& shared, const TableWindows* windows, const std::string& place);

}  // namespace kindling
