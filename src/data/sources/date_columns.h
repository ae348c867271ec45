#pragma once

#include <string>
#include <vector>

#include "kindling/formats/table.h"

namespace kindling {

// Adds the columns NAME.year, .month (1 to 12), .weekday (1 is Monday), .hour, all in the local time of the
// text, and .seconds (since 1970 in UTC) for a column of dates. `only_varying`: without those whose values
// are all equal, but with .seconds. Does nothing if the table lacks the column. Throws DataError for a value
// that is not a date, and for a column that exists already. `place`: the file.
void add_date_columns(const std::string& name, bool only_varying, Table& table, const std::string& place);

// Returns the names of the columns that were added.
std::vector<std::string> date_columns(const Table& table, const std::string& name);

}  // namespace kindling
