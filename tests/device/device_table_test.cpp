#include "kindling/device/device_table.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/device_under_test.h"

namespace kindling {
namespace {

class DeviceTableOf : public OnDevice {};
KINDLING_RUN_ON_DEVICES(DeviceTableOf);

TEST_P(DeviceTableOf, ListsTheDeviceWithItsMemory) {
  const DeviceTable table = device_table();
  if (device_.is_cpu()) {
    EXPECT_GT(table.host.num_cores, 0);
    EXPECT_GT(table.host.memory_total_bytes, table.host.memory_available_bytes);
    return;
  }
  const auto card = std::ranges::find(table.cards, std::optional(device_), &GpuInfo::device);
  ASSERT_NE(card, table.cards.end());
  EXPECT_EQ(card->why_not_usable, "");
  EXPECT_GT(card->memory_total_bytes, 0);
  EXPECT_GE(card->memory_used_bytes, 0);
}

TEST(DeviceTable, SaysWhyThereAreNoReadings) {
  const DeviceTable table = device_table();
  if (!table.cards.empty()) GTEST_SKIP() << "this machine has cards";
  EXPECT_TRUE(table.note.starts_with("no GPU can be used: ")) << table.note;
  EXPECT_EQ(table.note.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace kindling
