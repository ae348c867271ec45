#pragma once

#include <string>
#include <string_view>

#include "kindling/base/export.h"

// Text of single JSON values, for writers that need no document.
namespace kindling {

// Returns number_text, or null for values that JSON cannot represent (NaN, infinities).
KINDLING_API std::string json_number(double value);

// Returns `text` in quotes, escaped. Bytes beyond ASCII are not changed.
KINDLING_API std::string json_string(std::string_view text);

}  // namespace kindling
