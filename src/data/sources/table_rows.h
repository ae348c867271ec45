#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "formats/tables/wrong_values.h"
#include "kindling/base/error.h"
#include "kindling/base/export.h"
#include "kindling/data/table_data.h"
#include "kindling/formats/table.h"
#include "kindling/formats/table_schema.h"

// Tensors from the columns of a table. `place` is the file in messages.
namespace kindling {

struct TableRows {
  at::Tensor raw{};                // float64 [rows, features]
  std::vector<std::string> ids{};  // empty: no column of ids
};

// Returns the options of the reader that say how the file is written.
KINDLING_API TableOptions layout_of(const TableDataOptions& options);
// The same for the texts of a file: those in JSON lines have a decimal point.
TableOptions layout_in(const std::filesystem::path& file, const TableDataOptions& options);

// Throws ConfigError, which names the key and similar columns, if the table lacks the column.
const TableColumn& require_column(const Table& table, const std::string& name, const std::string& key,
                                  const std::string& place);

// Returns the error for a column that the table lacks.
KINDLING_API ErrorParts missing_column(const Table& table, const std::string& name, const std::string& key,
                                       const std::string& place);

// Returns the schema of a table that was read without one: kinds and classes, and the categories of all rows.
// Throws ConfigError and DataError.
TableSchema schema_of(const Table& table, const TableDataOptions& options, const std::string& place);

// Removes the categories that the rows (int64) do not have.
void keep_categories_of(const Table& table, const std::vector<std::int64_t>& rows, TableSchema& schema);

// Removes the features that have no value in the rows (int64) and that `listed` does not name, with a
// warning. Throws DataError if none is left.
void drop_empty_features(const Table& table, const std::vector<std::int64_t>& rows,
                         const std::vector<std::string>& listed, TableSchema& schema,
                         const std::string& place);

// Rows with a value that another kind of column cannot have, such as a text among dates.
class WrongRows {
 public:
  // `row`: of the table, counted from 0.
  void add(std::size_t row, const std::string& column, const ErrorParts& error);
  // Moves the rows to Table::skipped; or throws one DataError with the first of each column and kind.
  void skip_or_throw(bool skips, Table& table);

 private:
  std::map<std::size_t, std::string> errors_{};  // by row
  WrongValues values_{};
};

// Moves the rows in which one of these columns, if the table has it, has no value to Table::skipped.
void skip_rows_without(const std::vector<std::string>& names, Table& table, const std::string& place);

// Returns the rows of a table. Warns about unknown categories, once per column. Throws DataError for a
// missing column, and, if missing is "error", for a missing value.
TableRows rows_of(const Table& table, const TableSchema& schema, const std::string& missing,
                  const std::string& place);

// Returns one number per row, equal for equal values. Throws DataError for a missing value.
std::vector<std::int64_t> groups_of(const Table& table, const TableColumn& column, const std::string& place);

// Returns one number per row, in the order of the times. Throws DataError for a value that is missing or not
// a time: neither a number as the options write it nor a date, whichever most rows have. `wrong`: such rows
// are added to it instead, and have NaN.
std::vector<double> times_of(const Table& table, const TableColumn& column, const TableDataOptions& options,
                             const std::string& place, WrongRows* wrong = nullptr);

// Returns the weights of the rows, float64 [rows]. Throws DataError for a column of texts, and for a weight
// that is missing or negative.
at::Tensor weights_of(const Table& table, const TableColumn& column, const std::string& place);

}  // namespace kindling
