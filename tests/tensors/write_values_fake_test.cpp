// The cost of writing values into a tensor on a GPU.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "fake_accelerator.h"
#include "kindling/device/transfer_counts.h"
#include "kindling/tensors/move.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

TEST(FakeWriteValues, HostWaitsForPageableMemoryOnly) {
  const at::Tensor target = at::zeros({4}, at::device(fake::device(0)));
  const at::Tensor values = at::arange(4, at::kFloat);
  for (const bool pinned : {true, false}) {
    const at::Tensor from = pinned ? values.pin_memory() : values;
    target.zero_();
    fake::reset_counts();
    const TransferCounts before = transfer_counts();
    write_values(target, from);
    EXPECT_EQ(transfer_counts() - before, (TransferCounts{1, 16, 0, 0, pinned ? 0 : 1}));
    EXPECT_EQ(fake::counts().host_to_device_copies, 1);
    EXPECT_EQ(fake::counts().blocking_host_to_device_copies, pinned ? 0 : 1);
    EXPECT_TRUE(same(target, values));
  }
}

TEST(FakeWriteValues, OtherDtypesAreMovedAsTheyAre) {
  const at::Tensor target = at::zeros({4}, at::device(fake::device(0)));
  const at::Tensor doubles = at::arange(4, at::kDouble).pin_memory();
  fake::reset_counts();
  const TransferCounts before = transfer_counts();
  write_values(target, doubles);
  EXPECT_EQ(transfer_counts() - before, (TransferCounts{1, 32, 0, 0, 0}));
  EXPECT_EQ(fake::counts().host_to_device_bytes, 32);
  EXPECT_EQ(fake::counts().blocking_host_to_device_copies, 0);
  EXPECT_TRUE(same(target, at::arange(4, at::kFloat)));
}

}  // namespace
}  // namespace kindling
