#include "kindling/tensors/move.h"

#include <gtest/gtest.h>
#include <torch/nn.h>

#include "kindling/base/error.h"
#include "kindling/device/transfer_counts.h"
#include "kindling/nn/lazy_linear.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

// What Kindling counts while `call` runs.
template <class Call>
TransferCounts counted(Call call) {
  const TransferCounts before = transfer_counts();
  call();
  return transfer_counts() - before;
}

class Moves : public OnDevice {
 protected:
  // Returns `counts` if the device under test is a GPU, otherwise zeros.
  TransferCounts on_a_card(TransferCounts counts) const {
    return device_.is_cpu() ? TransferCounts{} : counts;
  }
};
KINDLING_RUN_ON_DEVICES(Moves);

TEST_P(Moves, CopyIsNewMemoryAlsoOnTheSameDevice) {
  const at::Tensor here = at::arange(4, at::kFloat).to(device_);
  const at::Tensor copy = copy_to(here, device_);
  EXPECT_EQ(copy.device(), device_);
  EXPECT_NE(copy.const_data_ptr(), here.const_data_ptr());
  EXPECT_TRUE(same(copy, at::arange(4, at::kFloat)));
}

TEST_P(Moves, MoveToTheSameDeviceIsTheVerySameTensor) {
  const at::Tensor here = at::ones({4}, at::device(device_));
  const TransferCounts counts = counted([&] { EXPECT_TRUE(move_to(here, device_).is_same(here)); });
  EXPECT_EQ(counts, TransferCounts{});
}

TEST_P(Moves, GoThereAndBackWithTheirBytesCounted) {
  const at::Tensor host = at::arange(6, at::kInt).view({2, 3});
  at::Tensor there, back;
  EXPECT_EQ(counted([&] { there = move_to(host, device_); }), on_a_card({1, 24, 0, 0, 1}));
  EXPECT_EQ(counted([&] { back = move_to(there, cpu()); }), on_a_card({0, 0, 1, 24, 1}));
  EXPECT_EQ(there.device(), device_);
  EXPECT_TRUE(same(back, host));
}

TEST_P(Moves, PinnedTensorsAreNotWaitedFor) {
  if (device_.is_cpu()) GTEST_SKIP() << "there is nothing to pin memory for";
  const at::Tensor pinned = at::ones({8}, at::kFloat).pin_memory();
  at::Tensor there;
  EXPECT_EQ(counted([&] { there = move_to(pinned, device_); }), (TransferCounts{1, 32, 0, 0, 0}));
  EXPECT_TRUE(same(there, at::ones({8})));
}

TEST_P(Moves, BatchKeepsItsStructureAndWhatIsThere) {
  const at::Tensor host = at::ones({3}), here = at::zeros({3}, at::device(device_));
  const Batch batch = Batch::map({{"x", Batch::leaf(host)}, {"y", Batch::list({Batch::leaf(here)})}});
  const Batch moved = move_to(batch, device_);
  EXPECT_EQ(moved.structure(), batch.structure());
  EXPECT_EQ(moved["x"].device(), device_);
  EXPECT_TRUE(same(moved["x"], host));
  EXPECT_TRUE(moved.part("y")[0].is_same(here));
  EXPECT_TRUE(batch["x"].is_same(host));
}

TEST_P(Moves, CopyOfABatchCopiesEveryTensor) {
  const at::Tensor here = at::zeros({3}, at::device(device_));
  const Batch copy = copy_to(Batch{here, here}, device_);
  ASSERT_EQ(copy.size(), 2);
  EXPECT_FALSE(copy[0].is_same(here));
  EXPECT_NE(copy[0].const_data_ptr(), here.const_data_ptr());
  EXPECT_NE(copy[1].const_data_ptr(), copy[0].const_data_ptr());
}

TEST_P(Moves, ModuleTakesParametersAndBuffersAlong) {
  torch::nn::Sequential net{torch::nn::Linear(3, 2), torch::nn::BatchNorm1d(2)};
  const at::Tensor weight = net->parameters()[0].clone();
  const std::int64_t bytes = 4 * (6 + 2 + 2 + 2 + 2 + 2) + 8;  // the counter of the batch norm is int64
  EXPECT_EQ(counted([&] { move_to(*net, device_); }), on_a_card({7, bytes, 0, 0, 7}));
  for (const auto& parameter : net->parameters()) EXPECT_EQ(parameter.device(), device_);
  for (const auto& buffer : net->buffers()) EXPECT_EQ(buffer.device(), device_);
  EXPECT_TRUE(net->parameters()[0].requires_grad());
  EXPECT_TRUE(same(net->parameters()[0], weight));
  EXPECT_EQ(counted([&] { move_to(*net, device_); }), TransferCounts{});
}

TEST_P(Moves, OutputOfAMovedModuleIsOnItsDevice) {
  torch::nn::Sequential net{LazyLinear(1)};
  move_to(*net, device_);
  const at::Tensor output = net->forward(at::ones({2, 4}, at::device(device_)));
  EXPECT_EQ(output.device(), device_);
  EXPECT_EQ(net->parameters()[0].device(), device_);
}

TEST_P(Moves, CopyOfAModuleIsItsOwn) {
  torch::nn::Sequential net{torch::nn::Linear(3, 2)};
  const auto copy = copy_to(*net, device_);
  EXPECT_EQ(copy->parameters()[0].device(), device_);
  EXPECT_TRUE(same(copy->parameters()[0], net->parameters()[0]));
  {
    const at::NoGradGuard no_grad;
    copy->parameters()[0].zero_();
  }
  EXPECT_FALSE(same(copy->parameters()[0], net->parameters()[0]));
}

TEST_P(Moves, GradientsFlowThroughACopy) {
  const at::Tensor host = at::ones({2}).requires_grad_();
  (copy_to(host, device_) * 3).sum().backward();
  EXPECT_TRUE(same(host.grad(), at::full({2}, 3.f)));
}

TEST_P(Moves, ValuesAreWrittenIntoATensorThatExists) {
  const at::Tensor target = at::zeros({2, 3}, at::device(device_));
  const void* place = target.const_data_ptr();
  const at::Tensor host = at::arange(6, at::kFloat).view({2, 3});
  EXPECT_EQ(counted([&] { write_values(target, host); }), on_a_card({1, 24, 0, 0, 1}));
  EXPECT_EQ(target.const_data_ptr(), place);
  EXPECT_TRUE(same(target, host));
  const at::Tensor back = at::empty({2, 3});
  EXPECT_EQ(counted([&] { write_values(back, target); }), on_a_card({0, 0, 1, 24, 1}));
  EXPECT_TRUE(same(back, host));
}

TEST_P(Moves, OperandsOnTwoDevicesAreRefusedWithTheRemedy) {
  const at::Tensor x = at::ones({2}, at::device(device_));
  const at::Tensor y = at::ones({2}, at::device(device_.is_cpu() ? Device(at::kMeta) : cpu()));
  const std::string text = error_text<DeviceError>([&] { require_same_device(x, y, "x + y"); });
  EXPECT_EQ(text, "x + y: one tensor is on " + device_.str() + ", the other on " + y.device().str() +
                      "; expected: both on the same device; move one with move_to(tensor, device) or let "
                      "prepare_batch and prepare_model do it");
  if (device_.is_cpu()) return;  // the meta device has no values
  EXPECT_THROW(x + y, c10::Error);
  EXPECT_TRUE(same(x + move_to(y, device_), at::full({2}, 2.f)));
}

TEST(Move, ModuleThatCannotBeClonedSaysWhatToDo) {
  struct Plain : torch::nn::Module {};
  const auto plain = std::make_shared<Plain>();
  const std::string text = error_text<Error>([&] { copy_to(*plain, cpu()); });
  EXPECT_NE(text.find("the module cannot be cloned"), std::string::npos) << text;
  EXPECT_NE(text.find("load the first one's state_dict into it"), std::string::npos) << text;
}

TEST(Move, SameDeviceIsRequired) {
  EXPECT_NO_THROW(require_same_device(at::ones({1}), at::ones({2}), "x + y"));
}

}  // namespace
}  // namespace kindling
