#include "kindling/device/device_memory.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include "kindling/base/error.h"
#include "support/device_under_test.h"
#include "support/scratch.h"

namespace kindling {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

std::int64_t allocated(Device device) { return device_memory(device).allocated_bytes; }

class MemoryOfDevice : public OnDevice {};
KINDLING_RUN_ON_DEVICES(MemoryOfDevice);

TEST_P(MemoryOfDevice, GrowsByWhatIsMadeThere) {
  // Resident bytes also move by other things: there the tensors are large and the bounds wide.
  const std::int64_t each = device_.is_cpu() ? 64 * kMiB : kMiB / 4, slack = device_.is_cpu() ? 16 * kMiB : 0;
  malloc_trim(0);  // what earlier tests have freed may still be resident, and would be used again
  const std::int64_t before = allocated(device_);
  const at::Tensor ones = at::ones({each / 4}, at::device(device_));
  const at::Tensor random = at::rand({each / 4}, at::device(device_));
  const std::int64_t grown = allocated(device_) - before;
  EXPECT_GE(grown, 2 * each - slack);
  EXPECT_LE(grown, 2 * each + slack);
}

TEST_P(MemoryOfDevice, ShrinksBackOnceATensorIsGone) {
  if (device_.is_cpu()) GTEST_SKIP() << "what the process gives back is up to its allocator";
  const std::int64_t before = allocated(device_);
  at::Tensor x = at::ones({2, 3}, at::device(device_));
  EXPECT_GT(allocated(device_), before);
  x.reset();
  EXPECT_EQ(allocated(device_), before);
}

TEST_P(MemoryOfDevice, OfTheOthersStaysAsItIs) {
  if (device_.is_cpu()) GTEST_SKIP() << "the other devices are cards";
  for (const Device other : try_all_gpus()) {
    if (other == device_) continue;
    const std::int64_t before = allocated(other);
    const at::Tensor x = at::rand({2, 3}, at::device(device_));
    EXPECT_EQ(allocated(other), before) << other;
  }
}

TEST_P(MemoryOfDevice, AddsUp) {
  const at::Tensor x = at::ones({256}, at::device(device_));
  const DeviceMemory memory = device_memory(device_);
  EXPECT_GE(memory.allocated_bytes, 1024);
  EXPECT_GE(memory.reserved_bytes, memory.allocated_bytes);
  EXPECT_GT(memory.free_bytes, 0);
  EXPECT_LE(memory.free_bytes + memory.reserved_bytes, memory.total_bytes);
}

TEST(DeviceMemory, RejectsAMissingGpu) {
  const std::string text = error_text<DeviceError>([] { device_memory(gpu(99)); });
  EXPECT_NE(text.find(":99): no such GPU: "), std::string::npos) << text;
}

}  // namespace
}  // namespace kindling
