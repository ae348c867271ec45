#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

// Sums that do not depend on the order of their terms. Every number is split into parts of 24 bits, each a
// multiple of its part's unit; sums of one part are exact in float64 for up to 2^29 numbers. So a metric is
// bit-identical however its samples are distributed over batches, threads and ranks.
namespace kindling {

struct ExactParts {
  std::int64_t lowest;  // exponent of the first part's unit; smaller numbers are truncated
  std::int64_t count;   // the last part holds everything above its unit
};
// Exact for float32 from 2^-25 on; a whole number uses only the last part.
inline constexpr ExactParts kPartsOfWeights{-48, 3};
// For float32, double, and products: the smallest difference is 4e-44, and sums are rounded from 1e52 on.
inline constexpr ExactParts kPartsOfNumbers{-144, 12};

// Splits [n…] into float64 [parts, n…], on the same device. NaN for non-finite numbers.
at::Tensor cut(const at::Tensor& numbers, ExactParts parts);

// Returns the value of each cell from sums of cut()'s results, [parts, cells] row by row.
std::vector<double> sum_of_parts(std::span<const double> sums, ExactParts parts);

}  // namespace kindling
