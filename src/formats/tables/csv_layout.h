#pragma once

#include <cstddef>
#include <string_view>

#include "formats/tables/csv_number.h"

namespace kindling {

// How a CSV text is laid out.
struct CsvLayout {
  char delimiter = ',';  // ' ': one or several blanks
  char comment = 0;      // lines that begin with it are skipped; 0: none
  bool has_header = true;
  std::size_t num_skipped_lines = 0;  // before the header
  NumberMarks numbers{};
};

// Returns the delimiter that the first line decides, with which it and the next line have equally many
// fields:
// ',', '\t', ';', '|', or ' ' if none of these does. ',' if there is none such. `of_numbers`: characters
// inside of numbers, which separate no fields.
char delimiter_of(std::string_view text, const CsvLayout& layout, std::string_view of_numbers);

}  // namespace kindling
