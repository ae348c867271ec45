#include <gtest/gtest.h>

#include "fake_accelerator.h"
#include "support/device_under_test.h"

namespace kindling {

std::vector<Device> devices_under_test() { return {fake::device(0), fake::device(1)}; }

}  // namespace kindling

// Tests without devices run in the other program.
int main(int argc, char** argv) {
  kindling::fake::install();  // before the suites are named after their devices
  GTEST_FLAG_SET(filter, "Devices/*:Fake*");
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
