#pragma once

#include <cmath>
#include <optional>

namespace kindling {

// The best of the values seen so far. NaN never is, and an equal value is no better one.
class BestSoFar {
 public:
  explicit BestSoFar(bool higher_is_better = false) : higher_is_better_(higher_is_better) {}

  // Takes the value; whether it is the best now.
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
