#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include "kindling/base/error.h"
#include "kindling/nn/lazy_conv2d.h"
#include "kindling/nn/lazy_linear.h"
#include "support/device_under_test.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

class LazyLayers : public OnDevice {
 protected:
  at::Tensor on_device(at::IntArrayRef shape) const { return at::ones(shape, at::device(device_)); }
};
KINDLING_RUN_ON_DEVICES(LazyLayers);

TEST_P(LazyLayers, LinearDrawsThePlainLayersNumbersOnEveryDevice) {
  at::manual_seed(5);
  const torch::nn::Linear plain(7, 3);
  at::manual_seed(5);
  LazyLinear lazy(3);
  EXPECT_TRUE(lazy->parameters().empty());
  lazy->forward(on_device({2, 7}));
  EXPECT_EQ(lazy->weight.device(), device_);
  EXPECT_TRUE(same(lazy->weight, plain->weight));
  EXPECT_TRUE(same(lazy->bias, plain->bias));
  EXPECT_TRUE(lazy->weight.requires_grad());
  EXPECT_TRUE(lazy->weight.is_leaf());
}

TEST_P(LazyLayers, ConvolutionDrawsThePlainLayersNumbersOnEveryDevice) {
  at::manual_seed(5);
  const torch::nn::Conv2d plain(torch::nn::Conv2dOptions(3, 4, {3, 5}));
  at::manual_seed(5);
  LazyConv2d lazy(LazyConv2dOptions{.out_channels = 4, .kernel_size = {3, 5}});
  lazy->forward(on_device({2, 3, 6, 6}));
  EXPECT_TRUE(same(lazy->weight, plain->weight));
  EXPECT_TRUE(same(lazy->bias, plain->bias));
}

TEST_P(LazyLayers, LinearComputesWhatThePlainLayerDoes) {
  LazyLinear lazy(3);
  const at::Tensor input = at::rand({2, 4, 5}), output = lazy->forward(input.to(device_));
  EXPECT_EQ(output.sizes(), (std::vector<std::int64_t>{2, 4, 3}));
  EXPECT_TRUE(same_on_cpu(output, at::linear(input, lazy->weight.cpu(), lazy->bias.cpu())));
}

TEST_P(LazyLayers, ConvolutionUsesStrideAndPadding) {
  LazyConv2d lazy(LazyConv2dOptions{.out_channels = 2, .stride = {2, 1}, .padding = {1, 0}});
  const at::Tensor input = at::rand({1, 3, 6, 6}), output = lazy->forward(input.to(device_));
  EXPECT_TRUE(close(output, at::conv2d(input, lazy->weight.cpu(), lazy->bias.cpu(), {2, 1}, {1, 0}), 1e-5));
}

TEST_P(LazyLayers, LearnUnderNoGradAsWell) {  // a validation before the first step makes the parameters
  LazyLinear lazy(1);
  {
    const at::NoGradGuard no_grad;
    lazy->forward(on_device({1, 2}));
  }
  lazy->forward(on_device({1, 2})).sum().backward();
  EXPECT_TRUE(same(lazy->weight.grad(), at::ones({1, 2})));
}

TEST_P(LazyLayers, CloneIsItsOwnLayer) {
  LazyLinear lazy(3);
  lazy->forward(on_device({2, 7}));
  const auto copy = std::dynamic_pointer_cast<LazyLinearImpl>(lazy->clone());
  EXPECT_TRUE(same(copy->weight, lazy->weight));
  EXPECT_EQ(copy->weight.device(), device_);
  EXPECT_TRUE(copy->parameters()[0].is_same(copy->weight));
  const at::Tensor before = lazy->weight.detach().clone();
  {
    const at::NoGradGuard no_grad;
    copy->weight.zero_();
  }
  EXPECT_TRUE(same(lazy->weight, before));
}

TEST(LazyLinear, CloneBeforeTheFirstBatchIsStillLazy) {
  const LazyLinear lazy(3);
  const auto copy = std::dynamic_pointer_cast<LazyLinearImpl>(lazy->clone());
  EXPECT_FALSE(copy->is_materialized());
  EXPECT_EQ(copy->forward(at::ones({1, 2})).size(1), 3);
}

TEST(LazyLinear, WithoutBiasHasOneParameter) {
  LazyLinear lazy(LazyLinearOptions{.out_features = 2, .bias = false});
  lazy->forward(at::ones({1, 3}));
  EXPECT_EQ(lazy->named_parameters().keys(), std::vector<std::string>{"weight"});
  LazyConv2d conv(LazyConv2dOptions{.bias = false});
  conv->forward(at::ones({1, 3, 4, 4}));
  EXPECT_EQ(conv->named_parameters().keys(), std::vector<std::string>{"weight"});
}

TEST(LazyLinear, KeepsTheSizeOfItsFirstBatch) {
  LazyLinear lazy(2);
  lazy->forward(at::ones({1, 3}));
  EXPECT_THROW(lazy->forward(at::ones({1, 4})), c10::Error);
}

TEST(LazyLinear, RefusesNoOutputs) {
  EXPECT_THROW(LazyLinear(0), ConfigError);
  EXPECT_THROW(LazyConv2d(LazyConv2dOptions{.out_channels = 0}), ConfigError);
  EXPECT_THROW(LazyConv2d(LazyConv2dOptions{.kernel_size = {0, 3}}), ConfigError);
}

TEST(LazyLinear, ShowsItself) {
  std::ostringstream text;
  text << LazyLinear(3) << LazyConv2d(LazyConv2dOptions{.out_channels = 2, .kernel_size = {3, 5}});
  EXPECT_EQ(text.str(), "kindling::LazyLinear(3)kindling::LazyConv2d(2, kernel_size=[3, 5])");
}

}  // namespace
}  // namespace kindling
