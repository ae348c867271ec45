#include "measurements/transfer_measurement.h"

#include <gtest/gtest.h>

#include "support/device_under_test.h"

namespace kindling {
namespace {

class TransferMeasurement : public OnDevice {
 protected:
  std::vector<TransferResult> measure() const {
    return measure_transfer(device_, {.total_bytes = 1 << 12, .num_pieces = 16},
                            {.warm_up = 0, .repeats = 2});
  }
};
KINDLING_RUN_ON_DEVICES(TransferMeasurement);

// Throws when other bytes arrive than were sent.
TEST_P(TransferMeasurement, MovesTheSameBytesInOneCopyAndInMany) {
  for (const TransferResult& result : measure()) {
    EXPECT_TRUE(result.route.num_copies == 1 || result.route.num_copies == 16);
    EXPECT_EQ(result.route.total_bytes, 1 << 12);
    EXPECT_EQ(result.time.repeats, 2);
    EXPECT_DOUBLE_EQ(result.gigabytes_per_second(), (1 << 12) / result.time.median_s / 1e9);
    EXPECT_DOUBLE_EQ(result.seconds_per_copy() * static_cast<double>(result.route.num_copies),
                     result.time.median_s);
  }
}

TEST_P(TransferMeasurement, GoesBothWaysFromPinnedAndPageableMemory) {
  const auto results = measure();
  if (device_.is_cpu()) {  // within the host: nothing of it is a transfer
    ASSERT_EQ(results.size(), 2u);
    for (const TransferResult& result : results) {
      EXPECT_EQ(result.route.from, result.route.to);
      EXPECT_EQ(result.counts, TransferCounts{});
    }
    return;
  }
  ASSERT_EQ(results.size(), 8u);
  int to_card = 0, pinned = 0;
  for (const TransferResult& result : results) {
    to_card += result.route.to == device_ ? 1 : 0;
    pinned += result.route.pinned ? 1 : 0;
  }
  EXPECT_EQ(to_card, 4);
  EXPECT_EQ(pinned, 4);
}

TEST_P(TransferMeasurement, PageableCopiesWaitForEachPinnedOnesForTheLast) {
  for (const auto& [route, time, counts] : measure()) {
    if (route.from == route.to) continue;
    const bool to_card = route.to == device_;
    EXPECT_EQ(counts.host_to_device_copies, to_card ? route.num_copies : 0);
    EXPECT_EQ(counts.host_to_device_bytes, to_card ? 1 << 12 : 0);
    EXPECT_EQ(counts.device_to_host_copies, to_card ? 0 : route.num_copies);
    EXPECT_EQ(counts.device_to_host_bytes, to_card ? 0 : 1 << 12);
    EXPECT_EQ(counts.host_waits, route.pinned ? 1 : route.num_copies);
  }
}

}  // namespace
}  // namespace kindling
