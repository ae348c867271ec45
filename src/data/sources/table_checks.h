#pragma once

#include "kindling/data/data_module.h"
#include "kindling/data/table_data_options.h"
#include "kindling/formats/table_schema.h"

namespace kindling {

// Throws ConfigError for options that contradict each other or those of all data, and for unknown values.
void check_table_options(const TableDataOptions& options, const DataOptions& shared);

// Throws ConfigError if the options have windows other than those of the run whose schema this is.
void require_same_windows(const TableDataOptions& options, const TableSchema& schema);
// The same for the separator of several labels, unless one of them has no label.
void require_same_separator(const TableDataOptions& options, const TableSchema& schema);

}  // namespace kindling
