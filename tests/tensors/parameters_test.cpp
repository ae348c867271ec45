#include "kindling/tensors/parameters.h"

#include <gtest/gtest.h>
#include <torch/nn.h>

#include "kindling/base/error.h"
#include "kindling/device/transfer_counts.h"
#include "kindling/nn/lazy_linear.h"
#include "kindling/tensors/move.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

torch::nn::Sequential small_net() {
  return torch::nn::Sequential{torch::nn::Linear(3, 2), torch::nn::BatchNorm1d(2)};
}

class ParametersOnDevice : public OnDevice {
 protected:
  TransferCounts on_a_card(TransferCounts counts) const {
    return device_.is_cpu() ? TransferCounts{} : counts;
  }
};
KINDLING_RUN_ON_DEVICES(ParametersOnDevice);

TEST_P(ParametersOnDevice, AreReadByName) {
  torch::nn::Sequential net = small_net();
  const at::Tensor weight = net->parameters()[0].detach().clone();
  move_to(*net, device_);
  const TransferCounts before = transfer_counts();
  const at::Tensor read = get_parameter(*net, "0.weight");
  EXPECT_EQ(transfer_counts() - before, on_a_card({0, 0, 1, 24, 1}));
  EXPECT_TRUE(read.device().is_cpu());
  EXPECT_FALSE(read.requires_grad());
  EXPECT_TRUE(same(read, weight));
  EXPECT_NE(read.const_data_ptr(), net->parameters()[0].const_data_ptr());
  EXPECT_TRUE(same(get_parameter(*net, "1.running_var"), at::ones({2})));
}

TEST_P(ParametersOnDevice, AreWrittenByNameWhereTheyAre) {
  torch::nn::Sequential net = small_net();
  move_to(*net, device_);
  const at::Tensor bias = net->parameters()[1];
  const void* place = bias.const_data_ptr();
  const TransferCounts before = transfer_counts();
  set_parameter(*net, "0.bias", at::tensor({0.5F, -2.0F}));
  EXPECT_EQ(transfer_counts() - before, on_a_card({1, 8, 0, 0, 1}));
  EXPECT_EQ(bias.const_data_ptr(), place);
  EXPECT_EQ(bias.device(), device_);
  EXPECT_TRUE(bias.requires_grad());
  EXPECT_TRUE(same(bias, at::tensor({0.5F, -2.0F})));
  set_parameter(*net, "1.num_batches_tracked", at::full({}, 7, at::kLong));
  EXPECT_TRUE(same(net->buffers()[2], at::full({}, 7, at::kLong)));
}

TEST_P(ParametersOnDevice, KeepTheirDtype) {
  torch::nn::Sequential net = small_net();
  move_to(*net, device_);
  const TransferCounts before = transfer_counts();
  set_parameter(*net, "0.bias", at::tensor({1.5, 3.0}, at::kDouble));
  EXPECT_EQ(transfer_counts() - before, on_a_card({1, 16, 0, 0, 1}));
  EXPECT_TRUE(same(net->parameters()[1], at::tensor({1.5F, 3.0F})));
}

TEST_P(ParametersOnDevice, AreUsedByTheNextForward) {
  torch::nn::Sequential net{torch::nn::Linear(2, 1)};
  move_to(*net, device_);
  set_parameter(*net, "0.weight", at::tensor({2.0F, -3.0F}).view({1, 2}));
  set_parameter(*net, "0.bias", at::tensor({4.0F}));
  EXPECT_TRUE(same_on_cpu(net->forward(at::ones({1, 2}, at::device(device_))), at::full({1, 1}, 3.0F)));
}

TEST_P(ParametersOnDevice, TakeValuesThatAreThereAlready) {
  torch::nn::Sequential net = small_net();
  move_to(*net, device_);
  const at::Tensor there = at::full({2}, 3.F, at::device(device_));
  const TransferCounts before = transfer_counts();
  set_parameter(*net, "0.bias", there);
  EXPECT_EQ(transfer_counts() - before, TransferCounts{});
  EXPECT_TRUE(same(net->parameters()[1], at::full({2}, 3.F)));
}

TEST(Parameters, WeightGivesALazyLayerItsShape) {
  torch::nn::Sequential net{LazyLinear(2)};
  EXPECT_EQ(
      error_text<Error>([&] { set_parameter(*net, "0.weight", at::ones({4})); }),
      "set_parameter(\"0.weight\"): the values have the shape [4]; expected: a shape that its lazy layer "
      "accepts");
  EXPECT_EQ(error_text<Error>([&] {
              set_parameter(*net, "0.weight", at::ones({3, 4}));
            }),
            "set_parameter(\"0.weight\"): the values have the shape [3, 4]; expected: [2, 4]");
  EXPECT_EQ(
      error_text<Error>([&] { get_parameter(*net, "0.weight"); }),
      "get_parameter(\"0.weight\"): the module has no parameter or buffer of this name: it has none yet");
  set_parameter(*net, "0.weight", at::ones({2, 5}));
  set_parameter(*net, "0.bias", at::zeros({2}));
  EXPECT_TRUE(same(net->forward(at::ones({1, 5})), at::full({1, 2}, 5.F)));
}

TEST(Parameters, ErrorsNameTheNearestName) {
  torch::nn::Sequential net = small_net();
  EXPECT_EQ(error_text<Error>([&] { get_parameter(*net, "0.wieght"); }),
            "get_parameter(\"0.wieght\"): the module has no parameter or buffer of this name; expected: did "
            "you mean "
            "'0.weight'?");
  const std::string text = error_text<Error>([&] { set_parameter(*net, "head", at::ones({1})); });
  EXPECT_NE(text.find("one of 0.weight, 0.bias, 1.weight"), std::string::npos) << text;
}

TEST(Parameters, AnotherShapeIsRefused) {
  torch::nn::Sequential net = small_net();
  const at::Tensor before = get_parameter(*net, "0.bias");
  EXPECT_EQ(error_text<Error>([&] { set_parameter(*net, "0.bias", at::ones({3})); }),
            "set_parameter(\"0.bias\"): the values have the shape [3]; expected: [2]");
  EXPECT_THROW(set_parameter(*net, "0.bias", at::ones({1})), Error);  // no broadcasting
  EXPECT_TRUE(same(net->parameters()[1], before));
}

}  // namespace
}  // namespace kindling
