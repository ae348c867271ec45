// The suites "Devices/…" run on every device of the list that each test program brings (main_*.cpp).
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kindling/device/device.h"
#include "support/places_tried.h"

namespace kindling {

std::vector<Device> devices_under_test();

// Those that a Trainer can use: the CPU or the first GPU.
inline std::vector<Device> trainer_devices_under_test() {
  std::vector<Device> devices;
  for (const Device device : devices_under_test())
    if (device.is_cpu() || device.index() == 0) devices.push_back(device);
  return devices;
}

class OnDevice : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!device_.is_cpu() && device_.index() >= num_gpus())
      GTEST_SKIP() << "there is no " << device_ << ": " << gpu_unavailable_reason();
  }

  // For tests that try every position: the operators of the fake accelerator take several times as long, so
  // they try every fifth.
  std::size_t place_stride() const {
    return device_.str().starts_with("fake") ? 5 * kPlaceStride : kPlaceStride;
  }
  // For TrainerOptions::num_gpus.
  std::int64_t num_gpus_wanted() const { return device_.is_cpu() ? 0 : 1; }

  const Device device_ = GetParam();
};

struct DeviceName {
  std::string operator()(const testing::TestParamInfo<Device>& info) const {
    std::string name = info.param.str();
    std::erase(name, ':');
    return name;
  }
};

}  // namespace kindling

#define KINDLING_RUN_ON_DEVICES(suite)                                                          \
  INSTANTIATE_TEST_SUITE_P(Devices, suite, testing::ValuesIn(::kindling::devices_under_test()), \
                           ::kindling::DeviceName())

#define KINDLING_RUN_ON_TRAINER_DEVICES(suite)                                                          \
  INSTANTIATE_TEST_SUITE_P(Devices, suite, testing::ValuesIn(::kindling::trainer_devices_under_test()), \
                           ::kindling::DeviceName())
