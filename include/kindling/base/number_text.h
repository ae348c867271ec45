#pragma once

#include <string>

#include "kindling/base/export.h"

// Numbers as text, the same in every locale. What is not finite is "nan", "inf" or "-inf".
namespace kindling {

// For files: the shortest text that reads back as the same double; whole numbers below 2^53 carry neither
// fraction nor exponent ("1000000").
KINDLING_API std::string number_text(double value);

// For people: so many decimals ("0.3412"); from 1e15 on the shortest text with so many digits.
KINDLING_API std::string fixed_text(double value, int decimals);

// For people: `digits` significant ones, in the shorter of the two notations: "0.0812", "84.1", "1e-3",
// "12346".
KINDLING_API std::string short_text(double value, int digits);

// A time as a clock shows it: "00:07", "1:02:03"; "--:--" for what is no time.
KINDLING_API std::string clock_text(double seconds);

}  // namespace kindling
