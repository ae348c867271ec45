#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

// Sums that do not depend on the order of what is added. Every number is cut into parts of 24 bits, each a
// multiple of its part's unit; sums of one part are exact in float64 for up to 2^29 numbers. So a metric is
// the same, to the bit, however its samples are spread over batches, threads and processes.
namespace kindling {

struct ExactParts {
  std::int64_t lowest;  // exponent of the first part's unit; what is smaller is cut off
  std::int64_t count;   // the last part holds all that is above its unit
};
// Exact for float32 from 2^-25 on; a whole number is in the last part alone.
inline constexpr ExactParts kPartsOfWeights{-48, 3};
// Of float32, double, their products: 4e-44 is the smallest difference, and from 1e52 on sums are rounded.
inline constexpr ExactParts kPartsOfNumbers{-144, 12};

// [n…] → float64 [parts, n…], on the same device. NaN for what is not finite.
at::Tensor cut(const at::Tensor& numbers, ExactParts parts);

// Sums of what cut() has given, [parts, cells] row by row → the value of each cell.
std::vector<double> sum_of_parts(std::span<const double> sums, ExactParts parts);

}  // namespace kindling
