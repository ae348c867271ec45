#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <limits>

#include "fake_accelerator.h"
#include "tensors/run_difference.h"

namespace kindling {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(),
                 kNan = std::numeric_limits<double>::quiet_NaN();
constexpr RunTolerance kClose{.relative = 1e-3, .of_all = 1e-5};

at::Tensor numbers(std::vector<double> values, at::ScalarType type = at::kFloat) {
  return at::tensor(values, at::kDouble).to(type).to(fake::device());
}

// Behind a first tensor that is the same, as the loss is.
bool are_other(const at::Tensor& one, const at::Tensor& other, RunTolerance tolerance,
               bool is_gradient = false) {
  const at::Tensor large = one.defined() ? numbers({100}).to(one.device()) : numbers({100});
  return differ({large, one}, {large, other}, {is_gradient, is_gradient}, tolerance).item<bool>();
}

TEST(FakeRunDifference, IsOneBitWithoutATolerance) {
  for (const auto type : {at::kByte, at::kHalf, at::kBFloat16, at::kFloat, at::kLong, at::kComplexDouble}) {
    EXPECT_FALSE(are_other(numbers({1, 2}, type), numbers({1, 2}, type), {})) << type;
    EXPECT_TRUE(are_other(numbers({1, 2}, type), numbers({1, 3}, type), {})) << type;
  }
  EXPECT_TRUE(are_other(numbers({1}), numbers({1 + 1e-6}), {}));
  EXPECT_TRUE(are_other(numbers({0}), numbers({-0.}), {}));
  EXPECT_FALSE(are_other(numbers({kNan}), numbers({kNan}), {}));
}

TEST(FakeRunDifference, IsMeasuredByTheLargestNumber) {
  EXPECT_FALSE(are_other(numbers({8, 0}), numbers({8, 0.007}), kClose));
  EXPECT_TRUE(are_other(numbers({8, 0}), numbers({8, 0.009}), kClose));
  EXPECT_TRUE(are_other(numbers({1e-4}), numbers({2e-4}), kClose));
  // Beside a gradient of 100 one of 1e-4 is rounding.
  EXPECT_FALSE(are_other(numbers({1e-4}), numbers({2e-4}), kClose, /*is_gradient=*/true));
  EXPECT_TRUE(are_other(numbers({1e-4}), numbers({2e-3}), kClose, /*is_gradient=*/true));
}

TEST(FakeRunDifference, HasNoToleranceForNonFiniteNumbersOrIntegers) {
  for (const double other : {1., kInf, kNan, -kInf})
    for (const double one : {kInf, kNan}) {
      const bool are_same = one == other || (one != one && other != other);
      for (const bool is_gradient : {false, true}) {
        EXPECT_EQ(are_other(numbers({one, 1}), numbers({other, 1}), kClose, is_gradient), !are_same);
        EXPECT_EQ(are_other(numbers({other, 1}), numbers({one, 1}), kClose, is_gradient), !are_same);
      }
    }
  // An infinite number in the same tensor does not make everything close.
  EXPECT_TRUE(are_other(numbers({kInf, 1}), numbers({kInf, 2}), kClose));
  EXPECT_TRUE(are_other(numbers({100000}, at::kLong), numbers({100001}, at::kLong), kClose));
  EXPECT_TRUE(are_other(numbers({1}, at::kBool), numbers({0}, at::kBool), kClose));
}

TEST(FakeRunDifference, ComparesComplexNumbersByTheirParts) {
  // The fake has no lazy ones.
  const at::Tensor one = at::complex(numbers({3, 1}).cpu(), numbers({0, 2}).cpu());
  for (const RunTolerance tolerance : {RunTolerance{}, kClose}) {
    EXPECT_FALSE(are_other(one.conj(), one.conj(), tolerance));
    EXPECT_FALSE(are_other(one.conj(), one.conj_physical(), tolerance));
    EXPECT_TRUE(are_other(one.conj(), one, tolerance));
    EXPECT_FALSE(are_other(at::imag(one.conj()), at::imag(one).neg(), tolerance));
  }
}

TEST(FakeRunDifference, PassesOverWhatHasNoElements) {
  for (const RunTolerance tolerance : {RunTolerance{}, kClose}) {
    EXPECT_FALSE(are_other(at::Tensor(), at::Tensor(), tolerance));
    const at::Tensor none = at::empty({0, 2}, fake::device());
    EXPECT_FALSE(are_other(none, none, tolerance, /*is_gradient=*/true));
  }
}

}  // namespace
}  // namespace kindling
