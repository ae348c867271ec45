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

TEST(Sgd, RefusesOptionsThatContradictEachOther) {
  const std::vector<at::Tensor> weights = {at::ones({1}).requires_grad_()};
  EXPECT_THROW(Sgd(weights, {.nesterov = true}), ConfigError);
  EXPECT_THROW(Sgd(weights, {.momentum = 0.9, .dampening = 0.1, .nesterov = true}), ConfigError);
  EXPECT_THROW(Sgd(weights, {.lr = -1}), ConfigError);
}

}  // namespace
}  // namespace kindling
