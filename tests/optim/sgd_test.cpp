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
// The steps of Python's torch.optim.SGD, whose mul_() does not round the momentum to 16 bits, as C++'s does.
void step_as_python(at::Tensor& weight, at::Tensor gradient, at::Tensor& buffer, const SgdOptions& options) {
  if (options.maximize) gradient = gradient.neg();
  if (options.weight_decay != 0) gradient = gradient.add(weight, options.weight_decay);
  if (options.momentum != 0) {
    if (buffer.defined())
      buffer.mul_(at::scalar_tensor(options.momentum, at::kDouble)).add_(gradient, 1 - options.dampening);
    else
      buffer = gradient.clone();
    gradient = options.nesterov ? gradient.add(buffer, options.momentum) : buffer;
  }
  weight.add_(gradient, -options.lr);
}

TEST(Sgd, IsPythonsForNarrowTypes) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf})
    for (const SgdOptions& options :
         std::vector<SgdOptions>{{.lr = 0.1},
                                 {.lr = 0.1, .weight_decay = 0.1, .maximize = true},
                                 {.lr = 0.1, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.1},
                                 {.lr = 0.1, .momentum = 0.9, .nesterov = true}}) {
      at::manual_seed(0);
      const at::Tensor start = at::randn({70}).to(type), weight = start.clone().requires_grad_();
      at::Tensor other = start.clone(), buffer;
      Sgd sgd({weight}, options);
      for (int step = 0; step < 3; ++step) {
        weight.mutable_grad() = at::randn({70}).to(type);
        step_as_python(other, weight.grad().clone(), buffer, options);
        sgd.step();
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
