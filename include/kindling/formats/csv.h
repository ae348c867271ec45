#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// Returns one line of CSV (RFC 4180) with '\n' at its end; quotes fields with a comma, quote or line break.
KINDLING_API std::string csv_line(std::span<const std::string> fields);

// Returns the fields of the first line of `text` and removes that line from it.
KINDLING_API std::vector<std::string> take_csv_line(std::string_view& text);

}  // namespace kindling
