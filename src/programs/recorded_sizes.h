#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "programs/size_polynomial.h"

namespace kindling {

// The combinations of dynamic sizes with which a forward is recorded, and what can be said of a number that
// has been seen with each of them.
class RecordedSizes {
 public:
  using Sizes = std::vector<std::int64_t>;     // one of each dynamic size
  using Values = std::array<std::int64_t, 5>;  // that one dynamic size takes, no two alike
  static constexpr int kMaxExponent = 2;       // of a size
  static constexpr int kMaxDegree = 3;         // of a product of sizes

  // Enough to know every polynomial of these degrees, and some more, which contradict what is none.
  explicit RecordedSizes(const std::vector<Values>& values);

  const std::vector<Sizes>& all() const noexcept { return all_; }

  // The polynomial that the numbers are, in the order of all(); nullopt: they are none of these degrees with
  // whole factors.
  std::optional<SizePolynomial> polynomial_through(const std::vector<std::int64_t>& numbers) const;

 private:
  using Exponents = SizePolynomial::Exponents;
  using Terms = std::map<Exponents, std::int64_t>;
  void add_exponents(Exponents begin, int degree);
  bool divide_differences(Terms& terms) const;
  void multiply_out(Terms& terms) const;
  std::int64_t value(std::size_t size, int number) const {
    return values_[size][static_cast<std::size_t>(number)];
  }

  std::vector<Values> values_;
  std::vector<Exponents> exponents_;  // of all products; the first combinations have these values' numbers
  std::vector<Sizes> all_;
};

}  // namespace kindling
