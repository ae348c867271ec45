#include <gtest/gtest.h>

#include <cmath>

#include "measurements/measured_work.h"
#include "measurements/measurements.h"
#include "support/device_under_test.h"

namespace kindling {
namespace {

class LogMeasurement : public OnDevice {};
KINDLING_RUN_ON_DEVICES(LogMeasurement);

TEST_P(LogMeasurement, ComputesTheSameNormsInAllFourWays) {
  LoggedProducts products(device_, {.num_products = 50, .n = 20});
  const auto norms = products.run(LoggedProducts::Way::one_at_a_time);
  ASSERT_EQ(norms.size(), 50u);
  for (const LoggedProducts::Way way : LoggedProducts::kWays) {
    const auto others = products.run(way);
    ASSERT_EQ(others.size(), norms.size());
    // Sums of 20 and of 400 terms in another order: some last bits of 24.
    for (std::size_t i = 0; i < norms.size(); ++i) EXPECT_NEAR(others[i], norms[i], 1e-4 * norms[i]);
  }
}

// An element is a sum of n products of two numbers with the variance 1/3, so its mean square is n/9; the norm
// is the root of n² of these.
TEST_P(LogMeasurement, ComputesNormsOfProducts) {
  constexpr double n = 100;
  const double expected = std::sqrt(n * n * n / 9);
  for (const float norm : LoggedProducts(device_, {.num_products = 5}).run(LoggedProducts::Way::batched))
    EXPECT_NEAR(norm, expected, 0.05 * expected);  // ten times the spread
}

TEST_P(LogMeasurement, WaitsForEachOneAtATimeAndOnceOtherwise) {
  const BenchReport report =
      measure_log({device_}, {.num_products = 30, .n = 8}, {.warm_up = 0, .repeats = 1});
  ASSERT_EQ(report.rows.size(), 4u);
  const bool moves = !device_.is_cpu();
  for (const BenchRow& row : report.rows) {
    const auto result = json_of(row);
    const int moves_wanted = !moves ? 0 : result["variant"] == "one at a time to the host" ? 30 : 1;
    EXPECT_EQ(result["device_to_host_copies"], moves_wanted);
    EXPECT_EQ(result["host_waits"], moves_wanted);
    EXPECT_EQ(result["device_to_host_bytes"], moves ? 30 * 4 : 0);
    EXPECT_EQ(result["host_to_device_copies"], 0);
    EXPECT_LE(result["largest_difference"], 1e-4);
    EXPECT_EQ(result["graph"], result["variant"] == "preallocated" && why_no_graph(device_).empty());
  }
  ASSERT_EQ(report.chart.curves.size(), 1u);
  EXPECT_EQ(report.chart.curves[0].x, (std::vector<double>{1, 2, 3, 4}));
}

TEST_P(LogMeasurement, RepeatsTheSameMeasurement) {
  LoggedProducts products(device_, {.num_products = 10, .n = 8});
  for (const LoggedProducts::Way way : LoggedProducts::kWays) EXPECT_EQ(products.run(way), products.run(way));
}

}  // namespace
}  // namespace kindling
