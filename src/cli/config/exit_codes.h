#pragma once

namespace kindling {

// What the program ends with beside 0 and 128 + the number of a signal. kFailureCode is for errors of other
// kinds.
inline constexpr int kFailureCode = 1, kConfigErrorCode = 2, kDataErrorCode = 3, kDivergedCode = 4;

// How a rank tells the launcher of its fit that training is complete and that its output is lost, which
// shells know as the end by SIGPIPE. The launcher itself ends with kFailureCode.
inline constexpr int kOutputLostInRankCode = 141;

}  // namespace kindling
