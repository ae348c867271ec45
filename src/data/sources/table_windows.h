#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kindling/data/data_module.h"
#include "kindling/data/split.h"
#include "kindling/data/table_data_options.h"
#include "kindling/formats/table.h"
#include "kindling/formats/table_schema.h"

// Windows of consecutive rows of a series; see TableData. `place` is the file in messages.
namespace kindling {

// The windows of a table, in the order of their last rows.
struct TableWindows {
  std::int64_t length = 0;
  std::vector<std::int64_t> order{};      // rows of the table, by series, then by time
  std::vector<std::int64_t> begins{};     // of the windows, positions in `order`
  std::vector<std::int64_t> last_rows{};  // of the windows, rows of the table
  std::vector<std::int64_t> targets{};    // rows of the table that they predict; empty: for predictions
  std::vector<std::int64_t> series{};     // of the windows, counted from 0

  // Returns the rows of the table that these windows have, ascending.
  std::vector<std::int64_t> rows_of(const std::vector<std::int64_t>& windows) const;
};

enum class WindowUse : std::uint8_t { trains, predicts };

// Returns all windows of the table with the columns of the schema; WindowUse::trains: those that have a row
// to predict with a value in all columns of targets, or in the label. Warns of the others, and of series that
// are too short. Throws DataError if no window is left.
TableWindows windows_of(const Table& table, const TableSchema& schema, const TableDataOptions& options,
                        WindowUse use, const std::string& place);

// Splits the rows of the training file, or its windows if `windows` is not nullptr. Without a split in the
// options, DataOptions::train and val are ranges of rows; a window belongs to the row that it predicts. No
// training window has a row that a validation window predicts, nor one of its group: these are removed with a
// warning. Throws ConfigError and DataError.
SplitIndices split_samples(const Table& table, const TableSchema& schema, const TableDataOptions& options,
                           const DataOptions& shared, const TableWindows* windows, const std::string& place);

}  // namespace kindling
