#include "kindling/config/count_or_fraction.h"

#include <algorithm>
#include <cmath>

namespace kindling {

// Rounding may produce a number just below a whole one: 0.1 of 30.
std::int64_t CountOrFraction::of(std::int64_t num_batches) const {
  if (const auto* count = std::get_if<std::int64_t>(&value_)) return *count;
  const double part = std::get<double>(value_) * static_cast<double>(num_batches);
  return std::max<std::int64_t>(static_cast<std::int64_t>(std::floor(part + 1e-9)), 1);
}

double CountOrFraction::number() const {
  return std::visit([](auto value) { return static_cast<double>(value); }, value_);
}

}  // namespace kindling
