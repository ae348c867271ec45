#pragma once

namespace kindling {

// What the program ends with beside 0, 1 for errors of other kinds, and 128 + the number of a signal.
inline constexpr int kConfigErrorCode = 2, kDataErrorCode = 3, kDivergedCode = 4;

}  // namespace kindling
