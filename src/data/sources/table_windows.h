#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

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

// Returns the last windows of each series for validation, or one of several runs of consecutive ones for
// `folds`. Throws ConfigError if none is left on a side.
SplitIndices split_in_order(const TableWindows& windows, const TableDataOptions& options);

// Removes the training windows that have a row which a validation window predicts, or one of its group, with
// a warning. `groups`: of the table's rows; empty: none. Throws ConfigError if none is left.
void remove_leaks(const TableWindows& windows, const std::vector<std::int64_t>& groups, SplitIndices& indices,
                  const std::string& place);

}  // namespace kindling
