#pragma once

#include <string>
#include <string_view>

#include "kindling/base/export.h"

// Text of single JSON values, for writers that need no document.
namespace kindling {

// number_text, with null for what JSON has no number for (NaN, infinities).
KINDLING_API std::string json_number(double value);

// `text` in quotes, escaped. Bytes beyond ASCII pass through as they are.
KINDLING_API std::string json_string(std::string_view text);

}  // namespace kindling
