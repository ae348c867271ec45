#pragma once

#include <string>

#include "kindling/base/export.h"

// Numbers as text, the same in every locale. Non-finite values are "nan", "inf" or "-inf".
namespace kindling {

// For files: returns the shortest text that reads back as the same double; whole numbers below 2^53 have
// neither fraction nor exponent ("1000000").
KINDLING_API std::string number_text(double value);

// For display: returns the number with `decimals` decimals ("0.3412"); from 1e15 on, the shortest text with
// that many digits.
KINDLING_API std::string fixed_text(double value, int decimals);

// For display: returns `digits` significant digits in the shorter of the two notations: "0.0812", "84.1",
// "1e-3", "12346".
KINDLING_API std::string short_text(double value, int digits);

// For display: returns a size with `digits` significant digits in the largest fitting unit: "512 B", "1.1
// GiB".
KINDLING_API std::string bytes_text(double bytes, int digits);

// Returns a duration as "00:07" or "1:02:03"; "--:--" for an invalid one.
KINDLING_API std::string clock_text(double seconds);

}  // namespace kindling
