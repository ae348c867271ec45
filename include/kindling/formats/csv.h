#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// Returns a field for a line: in quotes if it has a comma, a quote, a line break, or a space at
// an end, which readers remove.
KINDLING_API std::string csv_field(const std::string& field);

// Returns one line of CSV (RFC 4180) with '\n' at its end.
KINDLING_API std::string csv_line(std::span<const std::string> fields);

// Returns the fields of the first line of `text` and removes that line from it.
KINDLING_API std::vector<std::string> take_csv_line(std::string_view& text);

}  // namespace kindling
