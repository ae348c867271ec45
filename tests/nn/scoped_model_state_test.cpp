// Models that are afterwards what they were.
#include "nn/scoped_model_state.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include "kindling/nn/carried_state.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

using Extent = ScopedModelState::Extent;

struct NormalizedModel : torch::nn::Module {
  NormalizedModel() {
    register_module("linear", linear);
    register_module("norm", norm);
    norm->eval();
  }
  torch::nn::Linear linear{2, 2};
  torch::nn::BatchNorm1d norm{2};
};

TEST(ScopedModelState, RestoresTheModeOfEachLayer) {
  for (const bool is_training : {true, false}) {
    NormalizedModel model;
    {
      const ScopedModelState state(model);
      model.train(is_training);
    }
    EXPECT_TRUE(model.is_training());
    EXPECT_TRUE(model.linear->is_training());
    EXPECT_FALSE(model.norm->is_training());
  }
}

TEST(ScopedModelState, RestoresTheValuesOfItsExtentOnly) {
  for (const Extent extent : {Extent::modes, Extent::buffers, Extent::values}) {
    NormalizedModel model;
    const at::Tensor weight = model.linear->weight.detach().clone();
    {
      const at::NoGradGuard no_grad;
      const ScopedModelState state(model, extent);
      model.norm->running_mean.add_(1);
      model.linear->weight.add_(1);
    }
    EXPECT_EQ(same(model.norm->running_mean, at::zeros({2})), extent >= Extent::buffers);
    EXPECT_EQ(same(model.linear->weight.detach(), weight), extent >= Extent::values);
  }
}

TEST(ScopedModelState, KeepsTensorsInTheirMemoryWhenTheModelIsConverted) {
  const auto model = std::make_shared<NormalizedModel>();
  const at::Tensor weight = model->linear->weight;
  const void* const memory = weight.const_data_ptr();
  const at::Tensor values = weight.detach().clone();
  {
    const ScopedModelState state(*model, Extent::everything);
    model->to(at::kDouble);
    weight.requires_grad_(false);
    weight.mutable_grad() = at::ones({2, 2}, at::kDouble);
  }
  EXPECT_TRUE(model->linear->weight.is_same(weight));
  EXPECT_EQ(weight.const_data_ptr(), memory);
  EXPECT_TRUE(same(weight.detach(), values));
  EXPECT_TRUE(weight.requires_grad());
  EXPECT_FALSE(weight.grad().defined());
}

TEST(ScopedModelState, RestoresValuesBeforeItEnds) {
  NormalizedModel model;
  const ScopedModelState state(model, Extent::buffers);
  for (int i = 0; i < 2; ++i) {
    model.norm->running_mean.add_(1);
    state.restore_values();
    EXPECT_TRUE(same(model.norm->running_mean, at::zeros({2})));
  }
}

TEST(ScopedModelState, PutsHiddenStatesAside) {
  struct Stateful : torch::nn::Module {
    Stateful() { register_module("state", state); }
    CarriedState state;
  } model;
  model.state->carry(at::ones({1, 1, 1}));
  {
    const ScopedModelState state(model);
    EXPECT_TRUE(model.state->carried()[0].tensors.empty());
  }
  EXPECT_EQ(model.state->carried()[0].tensors.size(), 1U);
}

}  // namespace
}  // namespace kindling
