#include "data/transforms/number_scale.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kindling {

bool NumberScale::needs_offset() const {
  return deviation > 0 && (largest * kFloat32Rounding > kMostRounding * deviation ||
                           deviation < static_cast<double>(std::numeric_limits<float>::min()));
}

// The differences from a value of the column keep the digits that a sum of large numbers would lose.
double mean_of(const std::vector<double>& values) {
  const double origin = values.front();
  double sum = 0;
  for (const double value : values) sum += value - origin;
  return origin + sum / static_cast<double>(values.size());
}

// The smallest and the largest value are compared, because the mean of a constant may be rounded.
NumberScale scale_of(const std::vector<double>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  NumberScale scale{.mean = *least, .largest = std::max(std::abs(*least), std::abs(*most))};
  if (*least == *most) return scale;
  scale.mean = mean_of(values);
  const double unit = *most - *least;  // the squares of tiny differences are 0
  double sum = 0;
  for (const double value : values) sum += std::pow((value - scale.mean) / unit, 2);
  scale.deviation = unit * std::sqrt(sum / static_cast<double>(values.size()));
  return scale;
}

}  // namespace kindling
