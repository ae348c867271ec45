#pragma once

#include <string>
#include <vector>

#include "data/sources/table_rows.h"
#include "kindling/formats/table.h"
#include "kindling/formats/table_schema.h"

namespace kindling {

// Adds the columns NAME.year, .month (1 to 12), .weekday (1 is Monday), .hour, all in the local time of the
// text, and .seconds (since 1970 in UTC) for a column of dates. `only_varying`: without those whose values
// are all equal, but with .seconds. Does nothing if the table lacks the column. Adds rows with a value that
// is not a date to `wrong`. Throws DataError for a column that exists already. `place`: the file.
void add_date_columns(const std::string& name, bool only_varying, Table& table, WrongRows& wrong,
                      const std::string& place);

// Replaces the texts of a column by the numbers before or after the unit. Adds rows with another value to
// `wrong`. `options`: how numbers are written.
void remove_unit(const NumberUnit& unit, const TableOptions& options, const Table& table, WrongRows& wrong,
                 const std::string& place, TableColumn& column);

// Returns the names of the columns that were added.
std::vector<std::string> date_columns(const Table& table, const std::string& name);

}  // namespace kindling
