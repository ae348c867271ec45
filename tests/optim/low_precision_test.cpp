// Rules with parameters of bfloat16.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "kindling/tensors/move.h"
#include "optim/every_rule.h"
#include "optim/exact_products.h"
#include "support/device_under_test.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

class LowPrecision : public OnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, LowPrecision, testing::ValuesIn(devices_under_test()), DeviceName());

const std::pair<const char*, const char*> kDecoupled[] = {
    {"lion", "lr = 0.02\nweight_decay = 0.1"},
    {"muon", "lr = 0.02\nweight_decay = 0.1"},
    {"nadam", "lr = 0.02\nweight_decay = 0.1\ndecoupled_weight_decay = true"},
    {"radam", "lr = 0.02\nweight_decay = 0.1\ndecoupled_weight_decay = true"}};

// p·(1 − lr·weight_decay), rounded once. 0.998 itself would round to 0.99609375.
TEST_P(LowPrecision, DecayIsAProductInFloat32) {
  const at::Tensor start = at::linspace(0.5, 2, 64).view({8, 8}).to(at::kBFloat16);
  const at::Tensor expected = start.to(at::kDouble).mul(1 - 0.02 * 0.1).to(at::kBFloat16);
  for (const auto& [name, options] : kDecoupled)
    for (const bool has_tensor : {false, true}) {
      const at::Tensor weight = start.to(device_, at::kBFloat16, false, /*copy=*/true).requires_grad_();
      const auto optimizer = every_rule().at(name)(ParameterGroups({weight}), options);
      if (has_tensor) optimizer->set_lr(0, at::full({}, 0.02, at::dtype(at::kFloat).device(device_)));
      weight.mutable_grad() = at::zeros_like(weight);
      optimizer->step();
      EXPECT_TRUE(same(copy_to(weight.detach(), cpu()), expected)) << name << " " << has_tensor;
    }
}

// The rule in float32, with gradients of bfloat16, rounded after each step.
TEST_P(LowPrecision, MasterWeightsAreTheFloat32OfEveryRule) {
  for (const auto& [name, rule] : every_rule()) {
    SCOPED_TRACE(name);
    const at::Tensor start = at::linspace(-2, 2, 24).view({4, 6}).to(at::kBFloat16).to(device_);
    const at::Tensor weight = start.clone().requires_grad_(), wide = start.to(at::kFloat).requires_grad_();
    const auto narrow_rule = rule(ParameterGroups({weight}), "lr = 0.001\nweight_decay = 0.1"),
               wide_rule = rule(ParameterGroups({wide}), "lr = 0.001\nweight_decay = 0.1");
    narrow_rule->use_master_weights();
    for (int step = 0; step < 30; ++step) {
      const at::Tensor gradient = at::arange(24).add(step).sin().view({4, 6}).to(at::kBFloat16).to(device_);
      weight.mutable_grad() = gradient.clone();
      wide.mutable_grad() = gradient.to(at::kFloat);
      narrow_rule->step();
      wide_rule->step();
      ASSERT_TRUE(same(copy_to(weight.detach(), cpu()), copy_to(wide.detach(), cpu()).to(at::kBFloat16)))
          << step;
    }
    const StateDict narrow_state = narrow_rule->state_dict(), wide_state = wide_rule->state_dict();
    EXPECT_TRUE(same(copy_to(*narrow_state.find("0.master_weight"), cpu()), copy_to(wide.detach(), cpu())));
    for (const auto& [key, tensor] : wide_state.tensors)
      EXPECT_TRUE(same(copy_to(*narrow_state.find(key), cpu()), copy_to(tensor, cpu()))) << key;
  }
}

// 1.5 · 0.998^100 = 1.22785, which bfloat16 rounds to 1.2265625. Without masters each step is rounded away.
TEST_P(LowPrecision, MasterWeightsKeepSmallUpdates) {
  for (const auto& [name, options] : kDecoupled)
    for (const bool has_masters : {false, true}) {
      const at::Tensor weight =
          at::full({8, 8}, 1.5, at::dtype(at::kBFloat16).device(device_)).requires_grad_();
      const auto optimizer = every_rule().at(name)(ParameterGroups({weight}), options);
      if (has_masters) optimizer->use_master_weights();
      for (int step = 0; step < 100; ++step) {
        weight.mutable_grad() = at::zeros_like(weight);
        optimizer->step();
      }
      EXPECT_EQ(copy_to(weight.detach(), cpu()).max().item<double>(), has_masters ? 1.2265625 : 1.5) << name;
    }
}

// A callback may write weights, such as a limit; the other weights keep their digits.
TEST_P(LowPrecision, MasterWeightsFollowWrittenParameters) {
  const at::Tensor weight = at::ones({2}, at::dtype(at::kBFloat16).device(device_)).requires_grad_();
  Sgd optimizer(ParameterGroups({weight}), SgdOptions{.lr = 0.001});
  optimizer.use_master_weights();
  const auto step = [&] {
    weight.mutable_grad() = at::ones_like(weight);
    optimizer.step();
    return copy_to(*optimizer.state_dict().find("0.master_weight"), cpu());
  };
  step();
  {
    const at::NoGradGuard no_grad;
    weight.narrow(0, 0, 1).fill_(3);
  }
  const at::Tensor master = step();
  EXPECT_FLOAT_EQ(master[0].item<float>(), 3 - 0.001f);
  EXPECT_FLOAT_EQ(master[1].item<float>(), 1 - 0.001f - 0.001f);
}

TEST_P(LowPrecision, MasterWeightsAreSkippedWithTheStep) {
  for (const std::string name : {"adamw", "sgd", "lion"}) {
    const at::Tensor weight = at::ones({20}, at::dtype(at::kBFloat16).device(device_)).requires_grad_();
    const auto optimizer = every_rule().at(name)(ParameterGroups({weight}), "lr = 0.1");
    optimizer->use_master_weights();
    const at::Tensor found = at::ones({}, at::dtype(at::kFloat).device(device_));
    weight.mutable_grad() = at::ones_like(weight);
    optimizer->step({.found_inf = found});
    EXPECT_TRUE(same(copy_to(weight.detach(), cpu()), at::ones({20}, at::kBFloat16))) << name;
    EXPECT_TRUE(same(copy_to(*optimizer->state_dict().find("0.master_weight"), cpu()), at::ones({20})))
        << name;
  }
}

TEST(MasterWeights, NeedARuleThatUpdatesEachParameterAlone) {
  struct Custom : Optimizer {
    using Optimizer::Optimizer;
    void update(const Update&) override {}
  };
  Custom custom(ParameterGroups({at::ones({2}, at::kBFloat16).requires_grad_()}), 0.1);
  const std::string text = error_text<ConfigError>([&] { custom.use_master_weights(); });
  EXPECT_NE(text.find("master_weights: this optimizer does not support"), std::string::npos) << text;
  EXPECT_NE(text.find("bf16-mixed"), std::string::npos) << text;
}

// 1.5 · 0.9 = 1.35; with 0.9 rounded to bfloat16 it would be 1.34375.
TEST_P(LowPrecision, FactorsAreNotRounded) {
  const at::Tensor tensor = at::full({40}, 1.5, at::dtype(at::kBFloat16).device(device_));
  scale_exactly(tensor, 0.9);
  EXPECT_EQ(copy_to(tensor, cpu()).max().item<double>(), 1.3515625);
}

}  // namespace
}  // namespace kindling
