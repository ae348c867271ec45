#include <gtest/gtest.h>

#include "measurements/measurements.h"

namespace kindling {
namespace {

TEST(Timing, IsTheMedianBetweenTheExtremes) {
  const Timing odd = timing_of({3, 1, 2});
  EXPECT_EQ(odd.median_s, 2);
  EXPECT_EQ(odd.min_s, 1);
  EXPECT_EQ(odd.max_s, 3);
  EXPECT_EQ(odd.repeats, 3);
  EXPECT_EQ(timing_of({4, 1, 2, 8}).median_s, 3);
}

TEST(Timing, WarmsUpBeforeItCounts) {
  int calls = 0;
  EXPECT_EQ(time_calls({cpu()}, [&] { ++calls; }, {.warm_up = 3, .repeats = 4}).repeats, 4);
  EXPECT_EQ(calls, 7);
}

TEST(Timing, RepeatsShortCallsWithinARepeat) {
  int calls = 0;
  time_calls({cpu()}, [&] { ++calls; }, {.warm_up = 1, .repeats = 1, .min_seconds = 1});
  EXPECT_EQ(calls, 1 + 1000);  // no more than a thousand times, however short
}

}  // namespace
}  // namespace kindling
