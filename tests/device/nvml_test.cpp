#include "device/nvml.h"

#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "support/scratch.h"
#include "support/stand_ins.h"

namespace kindling {
namespace {

TEST(Nvml, ReadsVersionsAndCards) {
  const Nvml nvml(kStandInNvml);
  EXPECT_EQ(nvml.driver_version(), "580.95.05");
  EXPECT_EQ(nvml.cuda_version(), "13.0");
  const auto cards = nvml.cards();
  ASSERT_EQ(cards.size(), 2u);
  EXPECT_EQ(cards[0].index, 0);
  EXPECT_EQ(cards[0].name, "NVIDIA H200");
  EXPECT_EQ(cards[0].uuid, "GPU-1111aaaa-0000-4000-8000-000000000001");
  EXPECT_EQ(cards[0].pci_bus_id, "00000000:18:00.0");
  EXPECT_EQ(cards[0].memory_used_bytes, 75'161'927'680);
  EXPECT_EQ(cards[0].memory_total_bytes, 150'323'855'360);
  EXPECT_EQ(cards[0].temperature_celsius, 41);
  EXPECT_EQ(cards[0].power_watts, 512.3);
  EXPECT_EQ(cards[0].power_limit_watts, 700.0);
  EXPECT_EQ(cards[0].utilization_percent, 97);
  EXPECT_EQ(cards[1].index, 1);
  EXPECT_EQ(cards[1].utilization_percent, 0);
}

TEST(Nvml, ListsAProcessOnceAndKeepsWhatIsKnownOfIt) {
  const auto cards = Nvml(kStandInNvml).cards();
  ASSERT_EQ(cards.size(), 2u);
  ASSERT_TRUE(cards[0].processes);
  const auto& processes = *cards[0].processes;
  ASSERT_EQ(processes.size(), 2u);
  EXPECT_EQ(processes[0].pid, 31337);
  EXPECT_EQ(processes[0].name, "/usr/bin/kindling\xff");
  EXPECT_EQ(processes[0].memory_bytes, 74'625'056'768);
  EXPECT_EQ(processes[1].pid, 4242);
  EXPECT_EQ(processes[1].name, std::nullopt);
  EXPECT_EQ(processes[1].memory_bytes, std::nullopt);
  ASSERT_TRUE(cards[1].processes);
  EXPECT_TRUE(cards[1].processes->empty());
}

TEST(Nvml, MakesRoomForManyProcesses) {
  const Environment situation("KINDLING_STAND_IN_NVML", "busy");
  const auto cards = Nvml(kStandInNvml).cards();
  ASSERT_EQ(cards.size(), 2u);
  ASSERT_TRUE(cards[1].processes);
  EXPECT_EQ(cards[1].processes->size(), 100u);
  EXPECT_EQ(cards[1].processes->back().pid, 1099);
}

TEST(Nvml, LeavesOutWhatCannotBeRead) {
  const Environment situation("KINDLING_STAND_IN_NVML", "silent");
  const auto cards = Nvml(kStandInNvml).cards();
  ASSERT_EQ(cards.size(), 2u);
  EXPECT_EQ(cards[0].name, "NVIDIA H200");
  EXPECT_FALSE(cards[0].memory_used_bytes || cards[0].memory_total_bytes || cards[0].temperature_celsius ||
               cards[0].power_watts || cards[0].power_limit_watts || cards[0].utilization_percent ||
               cards[0].processes);
}

TEST(Nvml, ReadsTheMemoryOfOlderDrivers) {
  const Environment situation("KINDLING_STAND_IN_NVML", "old");
  const auto cards = Nvml(kStandInNvml).cards();
  ASSERT_EQ(cards.size(), 2u);
  EXPECT_EQ(cards[1].memory_used_bytes, 536'870'912);
  EXPECT_EQ(cards[1].memory_total_bytes, 51'539'607'552);
}

TEST(Nvml, MayFindNoCards) {
  const Environment situation("KINDLING_STAND_IN_NVML", "no_cards");
  EXPECT_TRUE(Nvml(kStandInNvml).cards().empty());
}

TEST(Nvml, TellsAMissingLibraryFromAMissingDriver) {
  const std::string no_library = error_text<DeviceError>([] { Nvml("/nowhere/libnvidia-ml.so.1"); });
  EXPECT_NE(no_library.find("cannot be opened (/nowhere/libnvidia-ml.so.1: cannot open shared object file"),
            std::string::npos)
      << no_library;
  const Environment situation("KINDLING_STAND_IN_NVML", "no_driver");
  EXPECT_EQ(error_text<DeviceError>([] { Nvml nvml(kStandInNvml); }),
            "NVML: it does not start (Driver Not Loaded)");
}

}  // namespace
}  // namespace kindling
