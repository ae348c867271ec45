#include "kindling/models/unet_regressor.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>

#include <memory>
#include <string>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/models/unet.h"
#include "kindling/tensors/state_dict.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

UnetRegressorOptions small(std::int64_t in, std::int64_t out) {
  return {.in_channels = in, .out_channels = out, .width = 4, .depth = 2};
}

// unet_test.cpp compares Unet with its twin in Python.
TEST(UnetRegressor, HasTheLayersOfUnet) {
  at::manual_seed(1);
  Unet unet({.num_classes = 3, .in_channels = 2, .width = 4, .depth = 2});
  at::manual_seed(1);
  UnetRegressor regressor(small(2, 3));
  const at::Tensor fields = at::randn({2, 2, 8, 12});
  for (const bool is_training : {true, false}) {
    unet.train(is_training);
    regressor.train(is_training);
    EXPECT_TRUE(same(unet.forward(fields).detach(), regressor.forward(fields).detach()));
  }
  load_state_dict(regressor, state_dict(unet));  // the same names
}

TEST(UnetRegressor, IsPeriodicInEachDimensionOfSpace) {
  for (std::int64_t dims = 1; dims <= 3; ++dims) {
    UnetRegressorOptions options = small(1, 1);
    options.dims = dims;
    options.padding_mode = "circular";
    UnetRegressor model(options);
    model.eval();
    std::vector<std::int64_t> shape(static_cast<std::size_t>(dims), 8);
    shape.insert(shape.begin(), {2, 1});
    const at::Tensor fields = at::randn(shape), outputs = model.forward(fields).detach();
    EXPECT_EQ(outputs.sizes(), fields.sizes());
    for (std::int64_t i = 2; i < dims + 2; ++i)  // by the size of the coarsest cell
      EXPECT_TRUE(close(model.forward(fields.roll(4, i)).detach(), outputs.roll(4, i), 1e-5)) << dims << i;
  }
}

TEST(UnetRegressor, PadsOtherSizesAtTheirEnd) {
  UnetRegressor model(small(1, 1));
  model.eval();
  const at::Tensor fields = at::randn({1, 1, 7, 10}),
                   padded = at::replication_pad2d(fields, {0, 2, 0, 1});  // to 8 x 12
  EXPECT_TRUE(
      same(model.forward(fields).detach(), model.forward(padded).detach().narrow(2, 0, 7).narrow(3, 0, 10)));
  EXPECT_EQ(
      error_text<DataError>([&] {
        model.forward(at::zeros({1, 1, 1, 8}));
      }),
      "unet_regressor: depth: the fields have the size [1, 8], and depth is 2; expected: sizes of at least "
      "half of 2 to the power of depth, 2; lower model.depth");
}

TEST(UnetRegressor, TakesFieldsWithoutChannels) {
  UnetRegressor model(small(0, 0));
  EXPECT_EQ(model.forward(at::zeros({3, 8, 8})).sizes(), (std::vector<std::int64_t>{3, 8, 8}));
  UnetRegressor to_one(small(2, 0));
  EXPECT_EQ(to_one.forward(at::zeros({3, 2, 8, 8})).sizes(), (std::vector<std::int64_t>{3, 8, 8}));
  EXPECT_EQ(error_text<DataError>([&] {
              model.forward(at::zeros({3, 2, 8, 8}));
            }),
            "unet_regressor: the inputs are Float [3, 2, 8, 8]; expected: [batch, height, width]; set "
            "model.in_channels = 2");
  EXPECT_EQ(error_text<DataError>([&] {
              to_one.forward(at::zeros({3, 8, 8}));
            }),
            "unet_regressor: the inputs are Float [3, 8, 8]; expected: [batch, 2, height, width]; set "
            "model.in_channels = 0 for inputs without channels");
}

TEST(UnetRegressor, ScalesTargetsWithoutChannels) {
  for (std::int64_t dims = 1; dims <= 3; ++dims) {
    UnetRegressorOptions options = small(0, 0);
    options.dims = dims;
    options.scale_target = true;
    UnetRegressor model(options);
    std::vector<std::int64_t> shape(static_cast<std::size_t>(dims + 1), 8);
    const at::Tensor targets = at::randn(shape).mul_(3).add_(70);
    model.fit_target_scale(targets);
    EXPECT_NEAR(model.named_buffers()["target_mean"].item<double>(), targets.mean().item<double>(), 1e-4);
    EXPECT_TRUE(model.loss(model.forward(targets), targets).isfinite().item<bool>());
  }
}

TEST(UnetRegressor, NamesTheChannelsOfOtherTargets) {
  UnetRegressor model(small(0, 0)), of_channels(small(0, 1));
  EXPECT_EQ(
      error_text<DataError>([&] {
        model.loss(at::zeros({3, 8, 8}), at::zeros({3, 2, 8, 8}));
      }),
      "unet_regressor: the targets are Float [3, 2, 8, 8], and the outputs Float [3, 8, 8]; expected: the "
      "same sizes; set model.out_channels = 2");
  EXPECT_EQ(
      error_text<DataError>([&] {
        of_channels.loss(at::zeros({3, 1, 8, 8}), at::zeros({3, 8, 8}));
      }),
      "unet_regressor: the targets are Float [3, 8, 8], and the outputs Float [3, 1, 8, 8]; expected: the "
      "same sizes; set model.out_channels = 0");
}

TEST(UnetRegressor, AddsTheChangeToTheInputs) {
  UnetRegressorOptions options = small(0, 0);
  options.residual = true;
  options.scale_target = true;
  UnetRegressor model(options);
  model.fit_target_scale(at::randn({9, 8, 8}).mul_(5).add_(30));
  const at::NoGradGuard no_grad;
  const auto head = std::dynamic_pointer_cast<torch::nn::Conv2dImpl>(model.head.ptr());
  head->weight.zero_();
  head->bias.fill_(2);
  const at::Tensor fields = at::randn({3, 8, 8});
  EXPECT_TRUE(close(model.forward(fields), fields + 2 * model.named_buffers()["target_std"], 1e-6));
  options.out_channels = 1;
  EXPECT_EQ(error_text<ConfigError>([&] { UnetRegressor{options}; }),
            "unet_regressor: residual: in_channels is 0, and out_channels is 1; expected: targets with the "
            "channels of the inputs");
}

}  // namespace
}  // namespace kindling
