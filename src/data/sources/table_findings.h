#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kindling/formats/table.h"
#include "kindling/formats/table_schema.h"

namespace kindling {

// Returns what looks wrong in the columns that a model is to read and to predict, though it can be read: a
// line each. `rows`: of the training, indices into the table. `layout`: how the file writes numbers. `place`
// is the file.
std::vector<std::string> findings_in(const Table& table, const TableSchema& schema,
                                     const std::vector<std::int64_t>& rows, const TableOptions& layout,
                                     const std::string& place);

}  // namespace kindling
