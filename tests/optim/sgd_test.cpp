#include "kindling/optim/sgd.h"

#include "kindling/base/error.h"
#include "optim/optimizer_problem.h"
#include "support/device_under_test.h"

namespace kindling {
namespace {

class SgdOnDevice : public OnDevice {
 protected:
  void expect_same(SgdOptions options) const {
    expect_same_training(
        device_, [&](auto parameters) { return std::make_unique<Sgd>(std::move(parameters), options); },
        [&](auto parameters) {
          return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                                     torch::optim::SGDOptions(options.lr)
                                                         .momentum(options.momentum)
                                                         .dampening(options.dampening)
                                                         .nesterov(options.nesterov)
                                                         .weight_decay(options.weight_decay));
        });
  }
};
KINDLING_RUN_ON_DEVICES(SgdOnDevice);

TEST_P(SgdOnDevice, IsLibTorchsWithoutMomentum) { expect_same({.lr = 0.1}); }
TEST_P(SgdOnDevice, IsLibTorchsWithWeightDecay) { expect_same({.lr = 0.1, .weight_decay = 0.1}); }
TEST_P(SgdOnDevice, IsLibTorchsWithMomentum) { expect_same({.lr = 0.05, .momentum = 0.9}); }
TEST_P(SgdOnDevice, IsLibTorchsWithDampening) {
  expect_same({.lr = 0.05, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.01});
}
TEST_P(SgdOnDevice, IsLibTorchsWithNesterov) { expect_same({.lr = 0.05, .momentum = 0.9, .nesterov = true}); }

TEST_P(SgdOnDevice, StepsByRateTimesGradient) {
  const at::Tensor weight = at::full({2}, 3.f, at::device(device_)).requires_grad_();
  Sgd sgd({weight}, {.lr = 0.25});
  (weight * 2).sum().backward();
  sgd.step();
  EXPECT_TRUE(same(weight, at::full({2}, 2.5f)));
  sgd.set_lr(1);
  sgd.step();  // the gradient is still there
  EXPECT_TRUE(same(weight, at::full({2}, 0.5f)));
}

// The fused operator of the CPU leaves such parameters as they are where they fill its vectors; 70 numbers
// fill some and leave a rest.
TEST(Sgd, IsLibTorchsForNarrowTypes) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf})
    for (const SgdOptions& options :
         std::vector<SgdOptions>{{.lr = 0.1},
                                 {.lr = 0.1, .weight_decay = 0.1, .maximize = true},
                                 {.lr = 0.1, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.1},
                                 {.lr = 0.1, .momentum = 0.9, .nesterov = true}}) {
      at::manual_seed(0);
      const at::Tensor start = at::randn({70}).to(type);
      const at::Tensor weight = start.clone().requires_grad_(), other = start.clone().requires_grad_();
      Sgd sgd({weight}, options);
      torch::optim::SGD reference({other}, torch::optim::SGDOptions(options.lr)
                                               .momentum(options.momentum)
                                               .dampening(options.dampening)
                                               .nesterov(options.nesterov)
                                               .weight_decay(options.weight_decay));
      for (int step = 0; step < 3; ++step) {
        const at::Tensor gradient = at::randn({70}).to(type);
        weight.mutable_grad() = gradient.clone();
        other.mutable_grad() = options.maximize ? gradient.neg() : gradient.clone();
        sgd.step();
        reference.step();
      }
      EXPECT_TRUE(at::equal(weight, other)) << type << ", momentum " << options.momentum;
      EXPECT_TRUE(weight.ne(start).any().item<bool>());
    }
}

TEST(Sgd, AppliesScaleAndFoundInfForNarrowTypes) {
  const at::Tensor weight = at::ones({70}, at::kBFloat16).requires_grad_();
  Sgd sgd({weight}, {.lr = 0.25});
  weight.mutable_grad() = at::full({70}, 4, at::kBFloat16);
  sgd.step({.grad_scale = at::full({}, 2.f), .found_inf = at::ones({})});
  EXPECT_TRUE(at::equal(weight, at::ones({70}, at::kBFloat16)));
  sgd.set_lr(0, at::full({}, 0.5));
  sgd.step({.grad_scale = at::full({}, 2.f), .found_inf = at::zeros({})});
  EXPECT_TRUE(at::equal(weight, at::zeros({70}, at::kBFloat16)));
}

TEST(Sgd, RefusesOptionsThatContradictEachOther) {
  const std::vector<at::Tensor> weights = {at::ones({1}).requires_grad_()};
  EXPECT_THROW(Sgd(weights, {.nesterov = true}), ConfigError);
  EXPECT_THROW(Sgd(weights, {.momentum = 0.9, .dampening = 0.1, .nesterov = true}), ConfigError);
  EXPECT_THROW(Sgd(weights, {.lr = -1}), ConfigError);
}

}  // namespace
}  // namespace kindling
