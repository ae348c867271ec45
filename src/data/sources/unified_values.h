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

// Returns what the texts of such a column mean, one for each; the texts themselves if the column has other
// values.
std::vector<std::string> unified_texts(std::vector<std::string> texts);

// Replaces the categories by unified_texts().
KINDLING_API void unify_values(TableColumn& column);

// Returns a saved schema with the texts of `now` wherever its own mean the same: those of a former version
// are as its file had them.
KINDLING_API TableSchema with_texts_of(const TableSchema& now, TableSchema saved);

// Stores in the schema that a column of the training file has booleans or integers only. The column must not
// be declared.
void store_unified(const TableColumn& column, TableSchema& schema);

// Replaces the booleans or integers of a column that had only those in the training file.
void unify_by(const TableSchema& schema, TableColumn& column);

}  // namespace kindling
