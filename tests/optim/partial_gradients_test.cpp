// Parameters that have a gradient in some steps only, in any pattern.
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/optim.h>

#include <functional>
#include <string>

#include "kindling/optim/adam.h"
#include "kindling/optim/optimizer_factory.h"
#include "kindling/optim/sgd.h"
#include "support/device_under_test.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

constexpr int kNumParameters = 4, kNumSteps = 30;

std::vector<at::Tensor> four_parameters(Device device) {
  std::vector<at::Tensor> parameters;
  for (int i = 0; i < kNumParameters; ++i)
    parameters.push_back(at::linspace(-1, 1, 3 + i).to(device).requires_grad_());
  return parameters;
}

// Whether parameter i has a gradient in a step: random, the same every time.
std::vector<std::vector<bool>> pattern_of(std::uint32_t seed) {
  std::vector<std::vector<bool>> pattern(kNumSteps, std::vector<bool>(kNumParameters));
  for (auto& step : pattern)
    for (std::size_t i = 0; i < step.size(); ++i) step[i] = (seed = seed * 1664525 + 1013904223) >> 31 != 0;
  return pattern;
}

void set_gradients(const std::vector<at::Tensor>& parameters, const std::vector<bool>& has_one, int step) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor values = parameters[i].detach();
    parameters[i].mutable_grad() = has_one[i] ? (values * 2 + 0.3 * (step % 5) - 0.5).sin() : at::Tensor();
  }
}

using Theirs = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

class PartialGradients : public OnDevice {
 protected:
  void expect_same(const OptimizerFactory& make, const Theirs& theirs) const {
    for (std::uint32_t seed = 1; seed <= 5; ++seed)
      for (const bool grouped : {false, true}) expect_same(make, theirs, pattern_of(seed), grouped);
  }

 private:
  void expect_same(const OptimizerFactory& make, const Theirs& theirs,
                   const std::vector<std::vector<bool>>& pattern, bool grouped) const {
    const auto own = four_parameters(device_), expected = four_parameters(cpu());
    const auto optimizer =
        grouped ? make(ParameterGroups{{.parameters = {own[3], own[1]}}, {.parameters = {own[0], own[2]}}})
                : make(own);
    const auto reference = theirs(expected);
    std::vector<int> num_steps(kNumParameters);
    for (int step = 0; step < kNumSteps; ++step) {
      const auto& has_one = pattern[static_cast<std::size_t>(step)];
      set_gradients(own, has_one, step);
      set_gradients(expected, has_one, step);
      optimizer->step();
      reference->step();
      for (std::size_t i = 0; i < has_one.size(); ++i) num_steps[i] += has_one[i] ? 1 : 0;
    }
    // The fused operators order the same float operations otherwise: a few last bits in 30 steps.
    for (std::size_t i = 0; i < own.size(); ++i)
      EXPECT_TRUE(close(own[i], expected[i], 5e-6)) << i << " grouped " << grouped;
    const StateDict state = optimizer->state_dict();
    const std::size_t places[] = {2, 1, 3, 0};  // in the groups
    for (std::size_t i = 0; i < own.size(); ++i) {
      const at::Tensor* count = state.find(std::to_string(grouped ? places[i] : i) + ".step");
      if (count == nullptr) continue;  // of momentum, which counts nothing
      EXPECT_EQ(count->item<float>(), static_cast<float>(num_steps[i])) << i << " grouped " << grouped;
    }
  }
};
KINDLING_RUN_ON_DEVICES(PartialGradients);

TEST_P(PartialGradients, AdamIsLibTorchs) {
  for (const bool amsgrad : {false, true})
    expect_same(
        [&](ParameterGroups parameters) {
          return std::make_unique<Adam>(std::move(parameters),
                                        AdamOptions{.lr = 0.05, .weight_decay = 0.1, .amsgrad = amsgrad});
        },
        [&](std::vector<at::Tensor> parameters) {
          return std::make_unique<torch::optim::Adam>(
              std::move(parameters), torch::optim::AdamOptions(0.05).weight_decay(0.1).amsgrad(amsgrad));
        });
}

TEST_P(PartialGradients, AdamWIsLibTorchs) {
  expect_same(
      [](ParameterGroups parameters) {
        return std::make_unique<AdamW>(std::move(parameters), AdamWOptions{.lr = 0.05, .weight_decay = 0.2});
      },
      [](std::vector<at::Tensor> parameters) {
        return std::make_unique<torch::optim::AdamW>(std::move(parameters),
                                                     torch::optim::AdamWOptions(0.05).weight_decay(0.2));
      });
}

TEST_P(PartialGradients, MomentumIsLibTorchs) {
  expect_same(
      [](ParameterGroups parameters) {
        return std::make_unique<Sgd>(std::move(parameters),
                                     SgdOptions{.lr = 0.05, .momentum = 0.9, .dampening = 0.3});
      },
      [](std::vector<at::Tensor> parameters) {
        return std::make_unique<torch::optim::SGD>(
            std::move(parameters), torch::optim::SGDOptions(0.05).momentum(0.9).dampening(0.3));
      });
}

// Parameters that have always had a gradient together count their steps in one tensor.
TEST(AdamCounters, SeparateOnceIfParametersDo) {
  const auto own = four_parameters(cpu());
  Adam adam(own);
  const auto step = [&](const std::vector<bool>& has_one) {
    set_gradients(own, has_one, 0);
    adam.step();
  };
  const auto counter_of = [&](int i) { return *adam.state_dict().find(std::to_string(i) + ".step"); };
  step({true, true, true, true});
  EXPECT_TRUE(counter_of(0).is_same(counter_of(3)));
  step({true, true, false, false});
  const at::Tensor parted = counter_of(0), left = counter_of(2);
  EXPECT_TRUE(counter_of(1).is_same(parted));
  EXPECT_TRUE(counter_of(3).is_same(left));
  EXPECT_FALSE(parted.is_same(left));
  for (int again = 0; again < 3; ++again) {
    step({true, true, true, true});
    step({false, false, true, true});
  }
  EXPECT_TRUE(counter_of(0).is_same(parted));
  EXPECT_TRUE(counter_of(2).is_same(left));
  EXPECT_EQ(parted.item<float>(), 5);
  EXPECT_EQ(left.item<float>(), 7);
}

}  // namespace
}  // namespace kindling
