#include "kindling/optim/optimizer.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kindling/base/error.h"
#include "kindling/optim/sgd.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

at::Tensor weight() { return at::ones({2}).requires_grad_(); }

TEST(Optimizer, NeedsParameters) { EXPECT_THROW(Sgd({}), ConfigError); }

TEST(Optimizer, GradientsAreThoseOfParametersThatHaveOne) {
  const at::Tensor used = weight(), unused = weight();
  Sgd sgd({unused, used});
  EXPECT_TRUE(sgd.gradients().empty());
  used.sum().backward();
  ASSERT_EQ(sgd.gradients().size(), 1);  // also after it has been asked before
  EXPECT_TRUE(sgd.gradients()[0].is_same(used.grad()));
}

TEST(Optimizer, StepWithoutGradientsChangesNothing) {
  const at::Tensor unused = weight();
  Sgd sgd({unused}, {.lr = 1, .momentum = 0.9, .weight_decay = 0.5});
  sgd.step();
  EXPECT_TRUE(same(unused, at::ones({2})));
}

TEST(Optimizer, GradientsMayBeChangedBeforeTheStep) {
  const at::Tensor used = weight();
  Sgd sgd({used}, {.lr = 1});
  used.sum().backward();
  sgd.gradients()[0].mul_(0.5);
  sgd.step();
  EXPECT_TRUE(same(used, at::full({2}, 0.5f)));
}

TEST(Optimizer, ZeroGradDropsTheGradients) {
  const at::Tensor used = weight();
  Sgd sgd({used});
  used.sum().backward();
  sgd.zero_grad();
  EXPECT_FALSE(used.grad().defined());
  EXPECT_TRUE(sgd.gradients().empty());
}

// An own rule: w ← w − lr·sign(gradient).
class SignDescent : public Optimizer {
 public:
  using Optimizer::Optimizer;

 protected:
  void update(const Update& update) override {
    for (std::size_t i = 0; i < update.parameters.size(); ++i)
      update.parameters[i].sub_(update.gradients[i].sign(), update.lr.number);
  }
};

TEST(Optimizer, CustomRuleGetsTheActiveParameters) {
  const at::Tensor unused = weight(), used = weight();
  SignDescent descent({unused, used}, 0.25);
  (used * -8).sum().backward();
  descent.step();
  EXPECT_TRUE(same(used, at::full({2}, 1.25f)));
  EXPECT_TRUE(same(unused, at::ones({2})));
}

TEST(Optimizer, MomentumIsRefusedWhereThereIsNone) {
  SignDescent descent({weight()}, 0.25);
  EXPECT_FALSE(descent.has_momentum());
  EXPECT_THROW(descent.momentum(), ConfigError);
  EXPECT_EQ(error_text<ConfigError>([&] { descent.set_momentum(0.9); }),
            "optimizer: this rule has no momentum; expected: a rule whose has_momentum() is true");
  Sgd sgd({weight()});
  EXPECT_EQ(error_text<ConfigError>([&] { sgd.set_momentum(1); }),
            "optimizer: a momentum of 1; expected: at least 0 and below 1");
}

TEST(Optimizer, CustomRuleIsNotAskedForUnsupportedFeatures) {
  const at::Tensor used = weight();
  SignDescent descent({used}, 0.25);
  used.sum().backward();
  descent.set_lr(0, at::ones({}));
  EXPECT_EQ(error_text<ConfigError>([&] { descent.step(); }),
            "optimizer: this rule does not support a tensor as learning rate; expected: a rule whose "
            "supports_tensor_lr() is true");
  EXPECT_TRUE(same(used, at::ones({2})));
}

// An own rule with a running mean, whose start it tells or keeps to itself.
class MeanDescent : public Optimizer {
 public:
  MeanDescent(ParameterGroups parameters, Start start)
      : Optimizer(std::move(parameters), 0.5), means_(add_state("mean", std::move(start))) {}

 protected:
  void update(const Update& update) override {
    for (std::size_t i = 0; i < update.parameters.size(); ++i) {
      at::Tensor& mean = means_[update.active[i]];
      if (!mean.defined()) mean = at::ones_like(update.parameters[i]);
      mean.lerp_(update.gradients[i], 0.5);
      update.parameters[i].sub_(mean, update.lr.number);
    }
  }

 private:
  std::vector<at::Tensor>& means_;
};

TEST(Optimizer, StepsOfCustomRulesCanBeSkippedAndScaled) {
  const auto ones = [](const at::Tensor& parameter) { return at::ones_like(parameter); };
  const at::Tensor used = weight(), infinity = at::full({2}, HUGE_VAL);
  MeanDescent descent({used}, ones);
  EXPECT_TRUE(descent.can_skip());
  used.mutable_grad() = infinity.clone();
  descent.step({.found_inf = at::ones({})});
  EXPECT_TRUE(same(used, at::ones({2})));
  EXPECT_TRUE(same(*descent.state_dict().find("0.mean"), at::ones({2})));
  used.mutable_grad() = at::full({2}, 12.f);
  descent.step({.grad_scale = at::full({}, 4.f), .found_inf = at::zeros({})});
  EXPECT_TRUE(same(used, at::zeros({2})));  // 1 − ½·(½·1 + ½·12/4)
}

TEST(Optimizer, StepIsNotSkippedIfTheInitialStateIsUnknown) {
  const at::Tensor used = weight();
  MeanDescent descent({used}, nullptr);
  used.sum().backward();
  EXPECT_FALSE(descent.can_skip());
  EXPECT_EQ(error_text<ConfigError>([&] { descent.step({.found_inf = at::ones({})}); }),
            "optimizer: this rule cannot skip a step: the initial value of its state is unknown; expected: "
            "add_state() with a start, or a rule that handles found_inf itself");
  EXPECT_TRUE(same(used, at::ones({2})));
}

}  // namespace
}  // namespace kindling
