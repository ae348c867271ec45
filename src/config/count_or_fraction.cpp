#include "kindling/config/portion.h"

#include <algorithm>
#include <cmath>

namespace kindling {

// A share that is meant to give a whole number may miss it by a last bit: 0.1 of 30.
std::int64_t Portion::of(std::int64_t num_batches) const {
  if (const auto* count = std::get_if<std::int64_t>(&value_)) return *count;
  const double part = std::get<double>(value_) * static_cast<double>(num_batches);
  return std::max<std::int64_t>(static_cast<std::int64_t>(std::floor(part + 1e-9)), 1);
}

double Portion::number() const {
  return std::visit([](auto value) { return static_cast<double>(value); }, value_);
}

}  // namespace kindling
