#include <gtest/gtest.h>

#include "support/device_under_test.h"

namespace kindling {

std::vector<Device> devices_under_test() { return {cpu(), Device(c10::DeviceType::CUDA, 0)}; }

}  // namespace kindling

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
