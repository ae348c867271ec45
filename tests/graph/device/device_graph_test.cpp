#include "graph/device/device_graph.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "support/device_under_test.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

class WorkOnDevice : public OnDevice {};
KINDLING_RUN_ON_DEVICES(WorkOnDevice);

TEST_P(WorkOnDevice, IsCapturedOrAReasonIsReturned) {
  at::Tensor x = at::ones({2}, at::device(device_));
  const auto recorded = record_work(device_, [&] { x.add_(x); });
  EXPECT_EQ(recorded == nullptr, !why_no_graph(device_).empty());
  if (!recorded) return;
  x.fill_(1);
  recorded->replay();
  recorded->replay();
  EXPECT_TRUE(same(x, at::full({2}, 4.f)));
}

TEST(DeviceGraph, IsUnavailableOnTheCpu) { EXPECT_EQ(why_no_graph(cpu()), "the CPU has no device graphs"); }

}  // namespace
}  // namespace kindling
