#pragma once

#include <string>
#include <vector>

#include "cli/config/chosen_keys.h"
#include "kindling/data/table_data.h"

namespace kindling {

// The column of a table that a model predicts, with the key of the config that names it.
struct PredictedColumn {
  std::string name{};
  bool is_label = false;  // data.label instead of data.target
  std::string reason{};   // empty: the table cannot be read, which is reported later
};

// Reads the table of the options, which name no column to predict. Numbers are a target, unless the column
// has only two values; texts are a label. Without a name, a column called target, label, class or y is
// chosen, otherwise the last one that varies and that does not identify rows. Throws ConfigError for a name
// that the table does not have, and without a name DataError if the table cannot be read.
PredictedColumn predicted_column(const TableDataOptions& options, const std::string& name);

// Returns the keys with which a table can be read that cannot be read without them: a header, marks of
// missing values, or marks in numbers. All columns that have mostly numbers are then columns of numbers.
// Nothing if no such keys suffice.
std::vector<ChosenKey> guess_reading(const TableDataOptions& options);

// Throws ConfigError, which lists the columns of the table. `command` and `table` are words of the user.
[[noreturn]] void refuse_without_target(const TableDataOptions& options, const std::string& command,
                                        const std::string& table);

}  // namespace kindling
