#include "measurements/product_pair.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <future>

#include "measurements/operator_threads.h"
#include "support/device_under_test.h"

namespace kindling {
namespace {

class PairMeasurement : public OnDevice {
 protected:
  // Throws when the two ways give different products.
  PairResult measure() const { return measure_pair(cards(), 48, {.warm_up = 1, .repeats = 3}); }
  std::vector<Device> cards() const { return device_.is_cpu() ? std::vector<Device>{} : first_gpus(-1); }
};
KINDLING_RUN_ON_TRAINER_DEVICES(PairMeasurement);

TEST_P(PairMeasurement, TakesTwoCardsOrTwoWorkersOfTheCpu) {
  const PairResult measured = measure();
  const std::vector<Device> expected = cards().size() < 2 ? std::vector<Device>{cpu()} : first_gpus(2);
  EXPECT_EQ(measured.places, expected);
  EXPECT_EQ(measured.n, 48);
}

TEST_P(PairMeasurement, ComparesTheTwoWays) {
  const PairResult measured = measure();
  EXPECT_EQ(measured.in_sequence.repeats, 3);
  EXPECT_EQ(measured.at_once.repeats, 3);
  EXPECT_GT(measured.at_once.min_s, 0);
  EXPECT_DOUBLE_EQ(measured.speed_up(), measured.in_sequence.median_s / measured.at_once.median_s);
}

TEST_P(PairMeasurement, LeavesTheNumberOfThreadsAsItWas) {
  const OperatorThreads three(3);
  measure();
  EXPECT_EQ(at::get_num_threads(), 3);
  // LibTorch keeps one number per thread, and one for those to come.
  EXPECT_EQ(std::async(std::launch::async, at::get_num_threads).get(), 3);
}

TEST(OperatorThreads, ComeBackAtTheEnd) {
  const int before = at::get_num_threads();
  {
    const OperatorThreads more(before + 2);
    EXPECT_EQ(at::get_num_threads(), before + 2);
  }
  EXPECT_EQ(at::get_num_threads(), before);
}

}  // namespace
}  // namespace kindling
