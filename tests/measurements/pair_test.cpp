#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <future>

#include "device/operator_threads.h"
#include "measurements/measurements.h"
#include "support/device_under_test.h"

namespace kindling {
namespace {

class PairMeasurement : public OnDevice {
 protected:
  // Throws if the two ways give different products.
  BenchReport measure() const { return measure_pair(cards(), 48, {.warm_up = 1, .repeats = 3}); }
  std::vector<Device> cards() const { return device_.is_cpu() ? std::vector<Device>{} : first_gpus(-1); }
};
KINDLING_RUN_ON_TRAINER_DEVICES(PairMeasurement);

TEST_P(PairMeasurement, UsesTwoGpusOrTwoWorkersOfTheCpu) {
  const BenchReport report = measure();
  ASSERT_EQ(report.rows.size(), 2u);
  const bool on_cards = cards().size() >= 2;
  const std::string one = device_.str(), two = one + " and " + gpu(1).str();
  const auto in_sequence = json_of(report.rows[0]), at_once = json_of(report.rows[1]);
  EXPECT_EQ(in_sequence["where"], on_cards ? one : "one worker of one thread on the cpu");
  EXPECT_EQ(at_once["where"], on_cards ? two : "two workers of one thread each on the cpu");
  EXPECT_EQ(at_once["n"], 48);
}

TEST_P(PairMeasurement, ComparesTheTwoWays) {
  const BenchReport report = measure();
  const auto in_sequence = json_of(report.rows[0]), at_once = json_of(report.rows[1]);
  EXPECT_EQ(in_sequence["repeats"], 3);
  EXPECT_EQ(at_once["repeats"], 3);
  EXPECT_GT(at_once["min_s"], 0);
  const double one_s = in_sequence["median_s"], two_s = at_once["median_s"];
  EXPECT_DOUBLE_EQ(report.summary["speed_up"], one_s / two_s);
  ASSERT_EQ(report.chart.curves.size(), 2u);
  EXPECT_EQ(report.chart.curves[0].y, (std::vector{2 / one_s, 2 / two_s}));
  EXPECT_EQ(report.chart.curves[1].y, (std::vector{2 / one_s, 4 / one_s}));
}

TEST_P(PairMeasurement, LeavesTheNumberOfThreadsAsItWas) {
  const OperatorThreads three(3);
  measure();
  EXPECT_EQ(at::get_num_threads(), 3);
  // LibTorch keeps one number per thread, and one for future threads.
  EXPECT_EQ(std::async(std::launch::async, at::get_num_threads).get(), 3);
}

}  // namespace
}  // namespace kindling
