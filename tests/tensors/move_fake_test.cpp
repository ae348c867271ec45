// Kindling's own counters against what the device has really seen.
#include <gtest/gtest.h>
#include <torch/nn.h>

#include "fake_accelerator.h"
#include "kindling/device/transfer_counts.h"
#include "kindling/tensors/move.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

TEST(FakeMoves, CountersAgreeWithTheDevice) {
  torch::nn::Sequential net{torch::nn::Linear(3, 2), torch::nn::BatchNorm1d(2)};
  const at::Tensor pinned = at::ones({8}).pin_memory();
  fake::reset_counts();
  const TransferCounts before = transfer_counts();
  move_to(*net, fake::device(1));
  const Batch batch = move_to(Batch{pinned, at::ones({3})}, fake::device(1));
  move_to(batch, cpu());
  const TransferCounts ours = transfer_counts() - before;
  const fake::Counts seen = fake::counts();
  EXPECT_EQ(seen.host_to_device_copies, 9);
  EXPECT_EQ(ours.host_to_device_copies, seen.host_to_device_copies);
  EXPECT_EQ(ours.host_to_device_bytes, seen.host_to_device_bytes);
  EXPECT_EQ(ours.device_to_host_copies, seen.device_to_host_copies);
  EXPECT_EQ(ours.device_to_host_bytes, seen.device_to_host_bytes);
  EXPECT_EQ(seen.blocking_host_to_device_copies, 8);
  EXPECT_EQ(ours.host_waits, seen.blocking_host_to_device_copies + seen.host_waits());
}

TEST(FakeMoves, BetweenTheCardsIsNoTransferOfTheHost) {
  const at::Tensor first = at::ones({4}, at::device(fake::device(0)));
  const TransferCounts before = transfer_counts();
  const at::Tensor second = move_to(first, fake::device(1));
  EXPECT_EQ(transfer_counts(), before);
  EXPECT_EQ(second.device(), fake::device(1));
  EXPECT_TRUE(same(second, at::ones({4})));
}

}  // namespace
}  // namespace kindling
