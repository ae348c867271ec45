#pragma once

#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/formats/table.h"
#include "kindling/formats/table_schema.h"

// One meaning of a value in every format, for columns of categories whose kind is not declared: where all
// values are booleans, True, TRUE and true are true. Where all are integers, 3.0 is 3: pandas writes integers
// so if one of them is missing.
namespace kindling {

// True if there are texts, and all are booleans.
bool are_booleans(const std::vector<std::string>& texts);

// Returns what the texts of such a column mean, one for each; the texts themselves if the column has other
// values.
std::vector<std::string> unified_texts(std::vector<std::string> texts);

// Replaces the categories by unified_texts().
KINDLING_API void unify_values(TableColumn& column);

// Returns a saved schema with the texts of `now` wherever its own mean the same: those of a former version
// are as its file had them.
KINDLING_API TableSchema with_texts_of(const TableSchema& now, TableSchema saved);

// Replaces booleans, for a column that had only those in the training file.
void unify_booleans(TableColumn& column);

}  // namespace kindling
