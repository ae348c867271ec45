#include <gtest/gtest.h>

#include "measurements/measurements.h"
#include "support/device_under_test.h"

namespace kindling {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

class TransferMeasurement : public OnDevice {
 protected:
  std::vector<nlohmann::ordered_json> measure() const {
    std::vector<nlohmann::ordered_json> results;
    const auto report =
        measure_transfer(device_, {.mebibytes = 1, .pieces = 16}, {.warm_up = 0, .repeats = 2});
    for (const BenchRow& row : report.rows) results.push_back(json_of(row));
    return results;
  }
};
KINDLING_RUN_ON_DEVICES(TransferMeasurement);

// Throws if other bytes arrive than were sent.
TEST_P(TransferMeasurement, CopiesTheSameBytesAtOnceAndInPieces) {
  for (const auto& result : measure()) {
    const double copies = result["num_copies"], seconds = result["median_s"];
    EXPECT_TRUE(copies == 1 || copies == 16);
    EXPECT_EQ(result["total_bytes"], kMiB);
    EXPECT_EQ(result["repeats"], 2);
    EXPECT_DOUBLE_EQ(result["gigabytes_per_s"], kMiB / seconds / 1e9);
    EXPECT_DOUBLE_EQ(result["us_per_copy"], seconds / copies * 1e6);
  }
}

TEST_P(TransferMeasurement, CopiesBothWaysFromPinnedAndPageableMemory) {
  const auto results = measure();
  if (device_.is_cpu()) {  // within the host: not a transfer
    ASSERT_EQ(results.size(), 2u);
    for (const auto& result : results) {
      EXPECT_EQ(result["memory"], "within the host");
      for (const auto& [name, count] : TransferCounts::kNames) EXPECT_EQ(result[name], 0) << name;
    }
    return;
  }
  ASSERT_EQ(results.size(), 8u);
  int to_card = 0, pinned = 0;
  for (const auto& result : results) {
    EXPECT_EQ(result["device"], device_.str());
    to_card += result["to"] == device_.str() ? 1 : 0;
    pinned += result["memory"] == "pinned" ? 1 : 0;
  }
  EXPECT_EQ(to_card, 4);
  EXPECT_EQ(pinned, 4);
}

TEST_P(TransferMeasurement, WaitsForEachPageableCopyAndForTheLastPinnedOne) {
  for (const auto& result : measure()) {
    if (result["from"] == result["to"]) continue;
    const bool to_card = result["to"] == device_.str();
    const std::int64_t copies = result["num_copies"];
    EXPECT_EQ(result["host_to_device_copies"], to_card ? copies : 0);
    EXPECT_EQ(result["host_to_device_bytes"], to_card ? kMiB : 0);
    EXPECT_EQ(result["device_to_host_copies"], to_card ? 0 : copies);
    EXPECT_EQ(result["device_to_host_bytes"], to_card ? 0 : kMiB);
    EXPECT_EQ(result["host_waits"], result["memory"] == "pinned" ? 1 : copies);
  }
}

TEST_P(TransferMeasurement, DrawsACurveForEachDirection) {
  const auto report = measure_transfer(device_, {.mebibytes = 1, .pieces = 16}, {.warm_up = 0, .repeats = 1});
  EXPECT_EQ(report.chart.curves.size(), device_.is_cpu() ? 1u : 4u);
  for (const Curve& curve : report.chart.curves)
    EXPECT_EQ(curve.x, (std::vector<double>{kMiB, kMiB / 16})) << curve.label;
}

}  // namespace
}  // namespace kindling
