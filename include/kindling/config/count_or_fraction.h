#pragma once

#include <concepts>
#include <cstdint>
#include <variant>

#include "kindling/base/export.h"

namespace kindling {

// Some of the batches of an epoch: a fraction (0.25) or a number (100) of them. In code and in a config the
// decimal point decides: 1.0 is all of them, 1 is one.
class KINDLING_API CountOrFraction {
 public:
  CountOrFraction() = default;
  CountOrFraction(double fraction) : value_(fraction) {}
  template <std::integral Count>
  CountOrFraction(Count count) : value_(static_cast<std::int64_t>(count)) {}

  // Returns the number of batches out of `num_batches`; a fraction gives at least one.
  std::int64_t of(std::int64_t num_batches) const;
  bool is_fraction() const noexcept { return std::holds_alternative<double>(value_); }
  [[deprecated("use is_fraction()")]] bool is_share() const noexcept { return is_fraction(); }
  // The fraction, or the count as a double.
  double number() const;

  friend bool operator==(const CountOrFraction&, const CountOrFraction&) = default;

 private:
  std::variant<double, std::int64_t> value_ = 1.0;
};

using Portion [[deprecated("use CountOrFraction")]] = CountOrFraction;  // the former name

}  // namespace kindling
