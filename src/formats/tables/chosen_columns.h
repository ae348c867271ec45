#pragma once

#include <string>

#include "kindling/formats/table.h"

namespace kindling {

// Returns a table in memory as if it had been read with the options: names, declared kinds, and columns.
// Those that say how a file is written have no effect. Throws DataError for a column that is missing, and for
// one of texts that the options declare as one of numbers.
Table with_chosen_columns(const Table& table, const TableOptions& options, const std::string& place);

}  // namespace kindling
