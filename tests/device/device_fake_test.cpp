// The section on GPUs of Dive into Deep Learning, on a machine with two of them.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "fake_accelerator.h"
#include "kindling/base/error.h"
#include "kindling/device/device.h"
#include "kindling/tensors/move.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

TEST(FakeDevices, AreCountedAndNamed) {
  EXPECT_EQ(num_gpus(), 2);
  EXPECT_EQ(gpu(), fake::device(0));
  EXPECT_EQ(gpu(1), fake::device(1));
  EXPECT_EQ(gpu_unavailable_reason(), "only 2 are visible");
}

TEST(FakeDevices, AreTriedByNumber) {
  EXPECT_EQ(try_gpu(), fake::device(0));
  EXPECT_EQ(try_gpu(1), fake::device(1));
  EXPECT_EQ(try_gpu(2), cpu());
  EXPECT_THROW(try_gpu(-1), DeviceError);
}

TEST(FakeDevices, AreTakenFromTheFirstOn) {
  const std::vector<Device> both = {fake::device(0), fake::device(1)};
  EXPECT_EQ(try_all_gpus(), both);
  EXPECT_EQ(first_gpus(-1), both);
  EXPECT_EQ(first_gpus(2), both);
  EXPECT_EQ(first_gpus(7), both);
  EXPECT_EQ(first_gpus(1), std::vector<Device>{fake::device(0)});
  EXPECT_TRUE(first_gpus(0).empty());
}

TEST(FakeDevices, AThirdOneIsAnErrorOnlyWhenItIsUsed) {
  const Device third = gpu(2);
  EXPECT_EQ(third.str(), "fake:2");
  EXPECT_THROW(at::ones({1}, at::device(third)), c10::Error);
}

TEST(FakeDevices, OnlyTheCardThatHoldsATensorUsesMemory) {
  fake::reset_counts();
  const auto before = fake::counts().live_bytes;
  const at::Tensor x = at::ones({2, 3}, at::device(try_gpu(1)));
  EXPECT_EQ(fake::counts().live_bytes[1] - before[1], 24);
  EXPECT_EQ(fake::counts().live_bytes[0], before[0]);
}

TEST(FakeDevices, TensorsOnTwoCardsAreRefusedUntilOneIsMoved) {
  const at::Tensor x = at::ones({2}, at::device(try_gpu())), y = at::ones({2}, at::device(try_gpu(1)));
  EXPECT_THROW(x + y, c10::Error);
  const std::string text = error_text<DeviceError>([&] { require_same_device(x, y, "x + y"); });
  EXPECT_NE(text.find("x + y: one tensor is on fake:0, the other on fake:1"), std::string::npos) << text;
  EXPECT_NE(text.find("move one with move_to(tensor, device)"), std::string::npos) << text;
  EXPECT_TRUE(same(move_to(x, y.device()) + y, at::full({2}, 2.f)));
}

}  // namespace
}  // namespace kindling
