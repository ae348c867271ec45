#pragma once

#include "kindling/data/data_module.h"
#include "kindling/data/table_data_options.h"

namespace kindling {

// Throws ConfigError for options that contradict each other or those of all data, and for unknown values.
void check_table_options(const TableDataOptions& options, const DataOptions& shared);

}  // namespace kindling
