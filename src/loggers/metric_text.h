#pragma once

#include <cmath>
#include <string>

#include "kindling/base/number_text.h"

namespace kindling {

// Returns the value of a metric for the screen: four decimals ("0.8719"), or four
// significant digits for very small and very large values ("4.2e-5").
inline std::string metric_text(double value) {
  constexpr double kSmallest = 1e-3, kLargest = 1e5;
  const double size = std::abs(value);
  return size == 0 || (size >= kSmallest && size < kLargest) ? fixed_text(value, 4) : short_text(value, 4);
}

}  // namespace kindling
