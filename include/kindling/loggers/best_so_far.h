#pragma once

#include <cmath>
#include <optional>

namespace kindling {

// Tracks the best value seen so far. NaN is never the best, and an equal value does not replace it.
class BestSoFar {
 public:
  explicit BestSoFar(bool higher_is_better = false) : higher_is_better_(higher_is_better) {}

  // Adds a value. Returns true if it is the best so far.
  bool update(double value) {
    if (std::isnan(value)) return false;
    if (best_ && !(higher_is_better_ ? value > *best_ : value < *best_)) return false;
    best_ = value;
    return true;
  }

  const std::optional<double>& value() const noexcept { return best_; }  // absent: none yet

 private:
  bool higher_is_better_;
  std::optional<double> best_;
};

}  // namespace kindling
