// What a board asks of a device, counted by the device.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "fake_accelerator.h"
#include "kindling/device/transfer_counts.h"
#include "kindling/metrics/progress_board.h"

namespace kindling {
namespace {

TEST(FakeBoard, DrawsWithoutAWaitAndMovesOnce) {
  const at::Tensor loss = at::full({}, 2., at::device(fake::device(0)));
  ProgressBoard board;
  fake::reset_counts();
  for (int i = 0; i < 100; ++i) board.draw(i, loss, "loss");
  EXPECT_EQ(fake::counts().host_waits(), 0);
  EXPECT_EQ(fake::counts().item_reads, 0);
  EXPECT_EQ(fake::counts().device_to_host_copies, 0);
  EXPECT_EQ(fake::counts().host_to_device_copies, 0);
  board.redraw();
  EXPECT_EQ(fake::counts().device_to_host_copies, 1);
  EXPECT_EQ(fake::counts().device_to_host_bytes, 400);
  EXPECT_EQ(board.chart().curves[0].y, std::vector<double>(100, 2.));
}

TEST(FakeBoard, TakesPointsFromSeveralDevicesInOrder) {
  ProgressBoard board;
  for (int i = 0; i < 6; ++i) {
    const Device device = i % 3 == 2 ? cpu() : fake::device(i % 3);
    board.draw(i, at::full({}, i, at::kFloat).to(device), "y", 2);
  }
  const TransferCounts before = transfer_counts();
  EXPECT_EQ(board.chart().curves[0].y, (std::vector<double>{0.5, 2.5, 4.5}));
  EXPECT_EQ((transfer_counts() - before).device_to_host_copies, 2);
}

}  // namespace
}  // namespace kindling
