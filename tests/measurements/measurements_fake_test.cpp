// Compares the measurements' counts with those of the device.
#include <gtest/gtest.h>

#include "fake_accelerator.h"
#include "measurements/measured_work.h"
#include "measurements/measurements.h"

namespace kindling {
namespace {

fake::Counts seen_by(LoggedProducts& products, LoggedProducts::Way way) {
  fake::reset_counts();
  products.run(way);
  return fake::counts();
}

TEST(FakeLogMeasurement, ReadsAThousandNumbersOneAtATime) {
  LoggedProducts products(fake::device(1), {.num_products = 1000, .n = 4});
  const fake::Counts seen = seen_by(products, LoggedProducts::Way::one_at_a_time);
  EXPECT_EQ(seen.item_reads, 1000);
  EXPECT_EQ(seen.host_waits(), 1000);
}

TEST(FakeLogMeasurement, CopiesAThousandNumbersAtOnceOtherwise) {
  LoggedProducts products(fake::device(1), {.num_products = 1000, .n = 4});
  for (const auto way :
       {LoggedProducts::Way::kept, LoggedProducts::Way::preallocated, LoggedProducts::Way::batched}) {
    products.run(way);  // the log allocates its memory on the host
    const fake::Counts seen = seen_by(products, way);
    EXPECT_EQ(seen.device_to_host_copies, 1);
    EXPECT_EQ(seen.device_to_host_bytes, 1000 * 4);
    EXPECT_EQ(seen.host_waits(), 1);
    EXPECT_EQ(seen.item_reads, 0);
    EXPECT_EQ(seen.host_to_device_copies, 0);
  }
}

TEST(FakeLogMeasurement, AllocatesNothingIfPreallocated) {
  LoggedProducts products(fake::device(0), {.num_products = 20, .n = 4});
  products.run(LoggedProducts::Way::preallocated);
  fake::reset_counts();
  const std::int64_t before = fake::counts().peak_bytes[0];
  products.run(LoggedProducts::Way::preallocated);
  EXPECT_EQ(fake::counts().peak_bytes[0], before);
}

TEST(FakePairMeasurement, QueuesBothProductsWithoutAWait) {
  fake::reset_counts();
  measure_pair({fake::device(0), fake::device(1)}, 8, {.warm_up = 0, .repeats = 3});
  // Three repeats of two products each way.
  EXPECT_EQ(fake::operator_calls("aten::mm"), 12);
  // Both GPUs before and after each of six repeats; and the four products that are compared at the end.
  EXPECT_EQ(fake::counts().device_waits, 24);
  EXPECT_EQ(fake::counts().blocking_device_to_host_copies, 4);
}

TEST(FakeTransferMeasurement, ReportsTheDeviceCounts) {
  for (const bool to_host : {false, true})
    for (const bool pinned : {false, true})
      for (const std::int64_t copies : {1, 64}) {
        TransferRoute route({.from = to_host ? fake::device(0) : cpu(),
                             .to = to_host ? cpu() : fake::device(0),
                             .pinned = pinned,
                             .total_bytes = 4096,
                             .num_copies = copies});
        fake::reset_counts();
        const TransferCounts before = transfer_counts();
        route.run();
        const TransferCounts ours = transfer_counts() - before;
        const fake::Counts seen = fake::counts();
        EXPECT_EQ(ours.host_to_device_copies, seen.host_to_device_copies);
        EXPECT_EQ(ours.host_to_device_bytes, seen.host_to_device_bytes);
        EXPECT_EQ(ours.device_to_host_copies, seen.device_to_host_copies);
        EXPECT_EQ(ours.device_to_host_bytes, seen.device_to_host_bytes);
        EXPECT_EQ(ours.host_waits, seen.host_waits() + seen.blocking_host_to_device_copies);
        EXPECT_EQ(ours.host_waits, pinned ? 1 : copies);
        EXPECT_TRUE(route.has_arrived());
      }
}

}  // namespace
}  // namespace kindling
