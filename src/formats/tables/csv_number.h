#pragma once

#include <optional>
#include <string_view>

namespace kindling {

// Reads the longest number at the beginning of begin…end, with a decimal point whatever the locale, correctly
// rounded. Returns the byte after it; nullptr if there is none or it is not finite.
const char* take_csv_number(const char* begin, const char* end, double& number);

// Returns the number that is all of `text`, which may begin with '+'.
std::optional<double> csv_number(std::string_view text);

}  // namespace kindling
