#pragma once

#include <span>
#include <string>

#include "kindling/base/export.h"

namespace kindling {

// One line of CSV (RFC 4180) with '\n' at its end; fields with comma, quote or line break are quoted.
KINDLING_API std::string csv_line(std::span<const std::string> fields);

}  // namespace kindling
