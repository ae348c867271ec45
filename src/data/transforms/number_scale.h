#pragma once

#include <vector>

// The scale of a column of numbers, in double.
namespace kindling {

// The relative rounding of float32, with 24 bits, and how much of its deviation it may be in a column.
inline constexpr double kFloat32Rounding = 0x1p-24, kMostRounding = 1e-3;

struct NumberScale {
  double mean = 0, deviation = 0;  // with n in the denominator; exactly 0 for a constant
  double largest = 0;              // absolute value

  // True if float32 would round the column by more than that, or has no normal number as small as its
  // deviation.
  bool needs_offset() const;
};

// Both require at least one value, and none that is NaN.
double mean_of(const std::vector<double>& values);
NumberScale scale_of(const std::vector<double>& values);

}  // namespace kindling
