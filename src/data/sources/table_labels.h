#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/base/export.h"
#include "kindling/data/split.h"
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

// Sorts texts by their numbers if all are numbers, else bytewise.
std::vector<std::string> sorted_classes(std::vector<std::string> texts);

// Returns the columns of targets, float32 [rows, targets], or the classes of the label, int64 [rows], of
// these rows; nullptr: of all. With several labels per row, a missing value is a row without one, and the
// result is uint8 [rows, classes]. Throws DataError for a column that the table lacks, a missing value, an
// unknown class, and a target that float32 cannot represent.
at::Tensor labels_of(const Table& table, const TableSchema& schema, const std::vector<std::int64_t>* rows,
                     const std::string& place);

// --- Several labels in a cell, such as "cat|dog" ---
// They become uint8 [rows, classes], 1 for each class of the row: as integers, they are refused by losses and
// metrics of one class per sample.

// Returns the labels in a text in their order, without blanks around them, empty ones and repetitions.
KINDLING_API std::vector<std::string> labels_in_text(std::string_view text, std::string_view separator);

// Returns the labels that occur in a column, sorted by number if all are numbers, else bytewise.
KINDLING_API std::vector<std::string> classes_in_sets(const TableColumn& column,
                                                      const std::string& separator);

// Returns a number per row of labels [rows, classes], equal for equal rows, for a stratified split. Sets with
// too few rows for a row on both sides have one number in common: if each had its row in the validation, they
// would take those of the common sets.
std::vector<std::int64_t> codes_of_sets(const at::Tensor& labels, const SplitOptions& split);

// Logs how many of the rows, "rows" or "files", have no label.
void log_rows_without_label(const at::Tensor& labels, const std::string& rows, const std::string& place);

// Logs a warning about classes without a training sample, and about those without a validation sample unless
// there are only a few samples.
void warn_of_unshared_classes(const at::Tensor& labels, const SplitIndices& split,
                              const std::vector<std::string>& names, const std::string& place);

}  // namespace kindling
