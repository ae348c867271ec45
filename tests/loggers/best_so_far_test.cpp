#include "kindling/loggers/best_so_far.h"

#include <gtest/gtest.h>

#include <limits>

namespace kindling {
namespace {

TEST(BestSoFar, ReturnsTheFirstOfTheLowestOrHighest) {
  BestSoFar loss;
  EXPECT_FALSE(loss.value());
  EXPECT_TRUE(loss.update(2));
  EXPECT_FALSE(loss.update(2)) << "equal is not better";
  EXPECT_FALSE(loss.update(3));
  EXPECT_TRUE(loss.update(-1));
  EXPECT_EQ(loss.value(), -1);
  BestSoFar accuracy(true);
  EXPECT_TRUE(accuracy.update(0.5));
  EXPECT_FALSE(accuracy.update(0.4));
  EXPECT_TRUE(accuracy.update(0.6));
  EXPECT_EQ(accuracy.value(), 0.6);
}

TEST(BestSoFar, IsNeverNan) {
  const double nan = std::nan("");
  for (const bool higher : {false, true}) {
    BestSoFar best(higher);
    EXPECT_FALSE(best.update(nan));
    EXPECT_FALSE(best.value());
    EXPECT_TRUE(best.update(1)) << "after a NaN at first";
    EXPECT_FALSE(best.update(-nan));
    EXPECT_EQ(best.value(), 1);
  }
}

TEST(BestSoFar, AcceptsInfinities) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  BestSoFar loss;
  EXPECT_TRUE(loss.update(kInfinite));
  EXPECT_FALSE(loss.update(kInfinite));
  EXPECT_TRUE(loss.update(1e300));
  EXPECT_TRUE(loss.update(-kInfinite));
}

}  // namespace
}  // namespace kindling
