#include <gtest/gtest.h>

#include <cstdlib>

#include "support/device_under_test.h"

namespace kindling {

std::vector<Device> devices_under_test() { return {cpu(), Device(c10::DeviceType::CUDA, 0)}; }

}  // namespace kindling

int main(int argc, char** argv) {
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);  // tests that ask for deterministic operators need it
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
