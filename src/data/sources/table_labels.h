#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/formats/table.h"
#include "kindling/formats/table_schema.h"

// What a model predicts, from the columns of a table. `place` is the file in messages.
namespace kindling {

// Throws DataError for a column of texts.
void require_numbers(const TableColumn& column, const std::string& place);

// Returns the error for a row without a value to predict. `place` names the row.
ErrorParts missing_label(std::string place);

// Returns the classes of a column of labels: sorted by number if all are numbers, else bytewise.
std::vector<std::string> class_names_of(const TableColumn& column);

// Returns the columns of targets, float32 [rows, targets], or the classes of the label, int64 [rows], of
// these rows; nullptr: of all. Throws DataError for a column that the table lacks, a missing value, an
// unknown class, and a target that float32 cannot represent.
at::Tensor labels_of(const Table& table, const TableSchema& schema, const std::vector<std::int64_t>* rows,
                     const std::string& place);

}  // namespace kindling
