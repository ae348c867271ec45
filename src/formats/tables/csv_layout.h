#pragma once

#include <string_view>

#include "formats/tables/csv_fields.h"

namespace kindling {

// Returns the delimiter that the first line decides, with which it and the next line have equally many
// fields:
// ',', '\t', ';', '|', or ' ' if none of these does. ',' if there is none such. `of_numbers`: characters
// inside of numbers, which separate no fields.
char delimiter_of(std::string_view text, const CsvLayout& layout, std::string_view of_numbers);

}  // namespace kindling
