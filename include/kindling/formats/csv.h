#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// One line of CSV (RFC 4180) with '\n' at its end; fields with comma, quote or line break are quoted.
KINDLING_API std::string csv_line(std::span<const std::string> fields);

// The fields of the first line of `text`, which begins behind that line afterwards.
KINDLING_API std::vector<std::string> take_csv_line(std::string_view& text);

}  // namespace kindling
