#include "kindling/optim/adam.h"

#include "kindling/base/error.h"
#include "optim/optimizer_problem.h"
#include "support/device_under_test.h"

namespace kindling {
namespace {

class AdamOnDevice : public OnDevice {
 protected:
  template <class Ours, class Theirs, class TheirOptions, class Options>
  void expect_same(Options options) const {
    expect_same_training(
        device_, [&](auto parameters) { return std::make_unique<Ours>(std::move(parameters), options); },
        [&](auto parameters) {
          return std::make_unique<Theirs>(std::move(parameters),
                                          TheirOptions(options.lr)
                                              .betas({options.betas[0], options.betas[1]})
                                              .eps(options.eps)
                                              .weight_decay(options.weight_decay)
                                              .amsgrad(options.amsgrad));
        });
  }
  void expect_same(AdamOptions options) const {
    expect_same<Adam, torch::optim::Adam, torch::optim::AdamOptions>(options);
  }
  void expect_same(AdamWOptions options) const {
    expect_same<AdamW, torch::optim::AdamW, torch::optim::AdamWOptions>(options);
  }
};
KINDLING_RUN_ON_DEVICES(AdamOnDevice);

TEST_P(AdamOnDevice, IsLibTorchs) { expect_same(AdamOptions{.lr = 0.05}); }
TEST_P(AdamOnDevice, IsLibTorchsWithWeightDecay) {
  expect_same(AdamOptions{.lr = 0.05, .betas = {0.8, 0.95}, .eps = 1e-4, .weight_decay = 0.1});
}
TEST_P(AdamOnDevice, IsLibTorchsWithAmsgrad) { expect_same(AdamOptions{.lr = 0.05, .amsgrad = true}); }
TEST_P(AdamOnDevice, DecoupledIsLibTorchs) { expect_same(AdamWOptions{.lr = 0.05, .weight_decay = 0.2}); }
TEST_P(AdamOnDevice, DecoupledIsLibTorchsWithAmsgrad) {
  expect_same(AdamWOptions{.lr = 0.05, .weight_decay = 0.2, .amsgrad = true});
}

TEST_P(AdamOnDevice, FirstStepIsTheRateAgainstTheSign) {
  const at::Tensor weight = at::tensor({1.f, 1.f}).to(device_).requires_grad_();
  Adam adam({weight}, {.lr = 0.25, .eps = 0});
  (weight * at::tensor({100.f, -0.01f}).to(device_)).sum().backward();
  adam.step();
  EXPECT_TRUE(close(weight, at::tensor({0.75f, 1.25f}), 1e-6));  // bias corrections round in float
}

TEST(Adam, RefusesOptionsOutOfRange) {
  const std::vector<at::Tensor> weights = {at::ones({1}).requires_grad_()};
  EXPECT_THROW(Adam(weights, {.betas = {0.9, 1.0}}), ConfigError);
  EXPECT_THROW(AdamW(weights, {.lr = -1}), ConfigError);
}

}  // namespace
}  // namespace kindling
