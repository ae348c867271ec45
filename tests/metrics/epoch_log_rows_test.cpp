// Rows that look alike and are not.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "kindling/metrics/epoch_log.h"
#include "support/device_under_test.h"

namespace kindling {
namespace {

class LogRows : public OnDevice {};
KINDLING_RUN_ON_DEVICES(LogRows);

TEST_P(LogRows, ValuesOfConsecutiveStepsKeepTheirOwnWeights) {
  EpochLog log(device_);
  for (const double weight : {1., 3.}) {
    log.mark(log.column("a"), weight == 1 ? 1. : 5., {.weight = weight});
    log.append({.global_step = weight == 1 ? 1 : 2, .batch = weight == 1 ? 0 : 1, .weight = 2});
  }
  log.move_to_host();
  EXPECT_EQ(log.means(), (NamedValues{{"a", 4}}));  // (1·1 + 3·5) / 4
}

TEST_P(LogRows, ConsecutiveStepsMayBeOfBatchesFarApart) {
  EpochLog log(device_);
  for (const std::int64_t step : {1, 2}) {
    log.mark(log.column("a"), 1.);
    log.append({.global_step = step, .batch = step == 1 ? 0 : 5, .weight = 2});
  }
  EXPECT_EQ(log.tag(0).batch, 0);
  EXPECT_EQ(log.tag(1).batch, 5);
}

TEST_P(LogRows, SumsContinueAfterBeingRead) {
  class Total : public Metric {
   public:
    at::Tensor update(const at::Tensor& outputs, const at::Tensor&) const override { return outputs; }
    double compute(std::span<const double> sums, double num_samples) const override {
      return sums[0] + 10 * sums[1] + 100 * num_samples;
    }
  };
  EpochLog log(device_);
  const auto total = std::make_shared<Total>();
  const at::Tensor part = at::tensor({1.F, 2.F}).to(device_);
  for (std::int64_t row = 1; row <= 3; ++row) {
    log.mark("total", total, part);
    log.append({.weight = 2});
    log.move_to_host();
    EXPECT_EQ(log.means(), (NamedValues{{"total", static_cast<double>(row * (1 + 20 + 200))}}));
  }
}

}  // namespace
}  // namespace kindling
