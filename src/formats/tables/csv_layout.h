#pragma once

#include <string_view>

#include "formats/tables/csv_fields.h"

namespace kindling {

// Returns the delimiter that the first line decides, with which it and the next line have equally many
// fields:
// ',', '\t', ';', '|', or ' ' if none of them is in it. ',' if there is none such.
char delimiter_of(std::string_view text, const CsvLayout& layout);

}  // namespace kindling
