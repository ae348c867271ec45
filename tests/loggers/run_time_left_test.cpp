#include "loggers/run_time_left.h"

#include <gtest/gtest.h>

namespace kindling {
namespace {

TEST(RunTimeLeft, ExtrapolatesTheSpeedSinceTheStart) {
  RunTimeLeft left;
  EXPECT_EQ(left.estimate({.epoch = 0, .batch = 5}, {.max_epochs = 3, .num_batches = 10}, 20), -1);
  left.start({}, 10);
  EXPECT_EQ(left.estimate({}, {.max_epochs = 3, .num_batches = 10}, 10), -1) << "nothing done yet";
  EXPECT_EQ(left.estimate({.epoch = 0, .batch = 5}, {.max_epochs = 3, .num_batches = 10}, 20), 50);
  EXPECT_EQ(left.estimate({.epoch = 2, .batch = 10}, {.max_epochs = 3, .num_batches = 10}, 40), 0);
}

TEST(RunTimeLeft, CountsOnlyWhatThisProcessHasDone) {
  RunTimeLeft left;
  left.start({.epoch = 1, .batch = 5, .global_step = 15}, 0);
  EXPECT_EQ(left.estimate({.epoch = 2, .batch = 0}, {.max_epochs = 3, .num_batches = 10}, 10), 20);
  EXPECT_EQ(left.estimate({.global_step = 20}, {.max_steps = 100}, 10), 160);
}

TEST(RunTimeLeft, TakesTheLimitThatIsReachedFirst) {
  RunTimeLeft left;
  left.start({}, 0);
  const Progress at{.epoch = 0, .batch = 10, .global_step = 10};
  EXPECT_EQ(left.estimate(at, {.max_epochs = 2, .max_steps = 1000, .num_batches = 20}, 10), 30);
  EXPECT_EQ(left.estimate(at, {.max_epochs = 200, .max_steps = 15, .num_batches = 20}, 10), 5);
  EXPECT_EQ(left.estimate(at, {.max_epochs = 2}, 10), -1) << "unknown number of batches";
}

}  // namespace
}  // namespace kindling
