// Clipping by value and a weight decay that changes, against PyTorch's C++ loop of the same steps.
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include <cmath>
#include <numbers>

#include "kindling/optim/adam.h"
#include "kindling/training/trainer.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

class OneLayer : public Module {
 public:
  OneLayer() { layer = register_module("layer", torch::nn::Linear(3, 2)); }
  at::Tensor forward(const at::Tensor& x) override { return layer(x); }
  at::Tensor loss(const at::Tensor& y, const at::Tensor& labels) override { return at::mse_loss(y, labels); }
  bool has_static_graph() const override { return true; }
  torch::nn::Linear layer{nullptr};
};

constexpr std::int64_t kEpochsOfDecay = 3, kStepsOfDecay = 12;
constexpr double kClipValue = 0.05, kDecayStart = 0.04, kDecayEnd = 0.4;

TEST(ClipAndDecay, AreThoseOfPyTorch) {
  at::manual_seed(1);
  const at::Tensor x = at::randn({16, 3}, at::kDouble), y = at::randn({16, 2}, at::kDouble) * 3;
  for (const char* step_graph : {"off", "on"}) {
    SCOPED_TRACE(step_graph);
    at::manual_seed(2);
    const auto model = std::make_shared<OneLayer>();
    model->to(at::kDouble);
    torch::nn::Linear twin(3, 2);
    twin->to(at::kDouble);
    {
      const at::NoGradGuard no_grad;
      twin->weight.copy_(model->layer->weight);
      twin->bias.copy_(model->layer->bias);
    }
    torch::optim::AdamW rule(twin->parameters(), torch::optim::AdamWOptions(0.05));
    for (std::int64_t step = 0; step < kStepsOfDecay; ++step) {
      dynamic_cast<torch::optim::AdamWOptions&>(rule.param_groups()[0].options())
          .weight_decay(kDecayEnd + (kDecayStart - kDecayEnd) *
                                        (1 + std::cos(std::numbers::pi * static_cast<double>(step) /
                                                      static_cast<double>(kStepsOfDecay))) /
                                        2);
      rule.zero_grad();
      at::mse_loss(twin(x.narrow(0, step % 4 * 4, 4)), y.narrow(0, step % 4 * 4, 4)).backward();
      torch::nn::utils::clip_grad_value_(twin->parameters(), kClipValue);
      rule.step();
    }
    TensorData data({x, y}, {x, y}, {.batch_size = 4, .shuffle = false});
    Trainer trainer({.max_epochs = kEpochsOfDecay,
                     .gradient_clip_val = kClipValue,
                     .gradient_clip_algorithm = "value",
                     .precision = "64-true",
                     .step_graph = step_graph,
                     .optimizer =
                         [](ParameterGroups parameters) {
                           return std::make_unique<AdamW>(
                               std::move(parameters), AdamWOptions{.lr = 0.05, .weight_decay = kDecayStart});
                         },
                     .schedule = with_weight_decay_end({}, kDecayEnd)});
    EXPECT_EQ(trainer.fit(model, data).progress.global_step, kStepsOfDecay);
    EXPECT_TRUE(close(model->layer->weight, twin->weight, 1e-12));
    EXPECT_TRUE(close(model->layer->bias, twin->bias, 1e-12));
  }
}

// The loss is 0 and the gradient infinite, which the limit would make a large one.
class RootLoss : public Module {
 public:
  RootLoss() { weight = register_parameter("weight", at::zeros({1})); }
  at::Tensor forward(const at::Tensor& x) override { return x; }
  at::Tensor loss(const at::Tensor&, const at::Tensor&) override { return weight.sqrt().sum(); }
  at::Tensor weight;
};

TEST(ClipAndDecay, FindsAnInfiniteGradientBeforeItIsClipped) {
  TensorData data = ramp(4, 0, 4);
  const FitResult result =
      Trainer({.max_epochs = 1, .gradient_clip_val = 1, .gradient_clip_algorithm = "value"})
          .fit(std::make_shared<RootLoss>(), data);
  EXPECT_EQ(result.status, FitStatus::diverged);
}

}  // namespace
}  // namespace kindling
