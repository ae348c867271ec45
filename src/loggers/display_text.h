#pragma once

#include <string>

// Numbers as people read them on a screen, the same in every locale.
namespace kindling {

std::string fixed_text(double value, int decimals);

// `digits` significant ones, in the shorter of the two notations: "0.0812", "84.1", "1e-3", "12346".
std::string short_text(double value, int digits);

std::string clock_text(double seconds);  // "00:07", "1:02:03"

}  // namespace kindling
