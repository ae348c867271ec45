#include "kindling/optim/lbfgs.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "kindling/optim/sgd.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

// Rosenbrock's function (1960), with its least value at (1, 1).
struct Valley {
  explicit Valley(Device device) : x(at::tensor({-1.2, 1.0}).to(device).requires_grad_()) {}
  at::Tensor loss() const { return (x[1] - x[0].pow(2)).pow(2) * 100 + (1 - x[0]).pow(2); }
  at::Tensor step(Optimizer& optimizer) const {
    return optimizer.step_with([&] {
      optimizer.zero_grad();
      at::Tensor now = loss();
      now.backward();
      return now;
    });
  }
  at::Tensor x;
};

class LbfgsOnDevice : public OnDevice {};
KINDLING_RUN_ON_DEVICES(LbfgsOnDevice);

TEST_P(LbfgsOnDevice, FindsTheEndOfAValley) {
  const Valley valley(device_);
  Lbfgs lbfgs({valley.x}, {.line_search_fn = "strong_wolfe"});
  EXPECT_NEAR(valley.step(lbfgs).item<double>(), 24.2, 1e-5);  // what it was before: 100·0.44² + 2.2²
  for (int step = 0; step < 3; ++step) valley.step(lbfgs);
  // Its tolerance is a loss that changes by 1e-9: distances of its root.
  EXPECT_TRUE(close(valley.x, at::ones({2}, at::kDouble).to(valley.x.scalar_type()), 1e-3));
}

TEST_P(LbfgsOnDevice, ResumesBitIdenticallyFromASavedState) {
  for (const bool searches : {false, true}) {
    const LbfgsOptions options{
        .lr = searches ? 1 : 0.01,
        .max_iter = 3,
        .history_size = 4,
        .line_search_fn = searches ? std::optional<std::string>("strong_wolfe") : std::nullopt};
    const Valley whole(device_), first(device_), second(device_);
    Lbfgs of_whole({whole.x}, options), before({first.x}, options), after({second.x}, options);
    for (int step = 0; step < 5; ++step) whole.step(of_whole);
    for (int step = 0; step < 3; ++step) first.step(before);
    second.x.detach().copy_(first.x.detach());
    after.load_state_dict(before.state_dict());
    for (int step = 0; step < 2; ++step) second.step(after);
    EXPECT_TRUE(same(second.x, whole.x));
  }
}

TEST(Lbfgs, RequiresAClosureAndOneGroup) {
  const at::Tensor a = at::ones({2}).requires_grad_(), b = at::ones({2}).requires_grad_();
  Lbfgs lbfgs({a});
  a.sum().backward();
  EXPECT_EQ(error_text<ConfigError>([&] { lbfgs.step(); }),
            "lbfgs: a step without a closure; expected: step_with(closure), which evaluates the loss several "
            "times");
  EXPECT_TRUE(lbfgs.needs_closure());
  EXPECT_FALSE(lbfgs.can_skip());
  EXPECT_THROW(Lbfgs(ParameterGroups{{.parameters = {a}}, {.parameters = {b}}}), ConfigError);
  EXPECT_THROW(Lbfgs(ParameterGroups{{.parameters = {a}, .weight_decay = 0.1}}), ConfigError);
  EXPECT_THROW(Lbfgs({a}, {.line_search_fn = "armijo"}), ConfigError);
}

TEST(Lbfgs, OtherRulesTakeClosuresToo) {
  const Valley valley(cpu()), same_valley(cpu());
  Sgd sgd({valley.x}, {.lr = 1e-3}), plain({same_valley.x}, {.lr = 1e-3});
  valley.step(sgd);
  same_valley.loss().backward();
  plain.step();
  EXPECT_TRUE(same(valley.x, same_valley.x));
}

}  // namespace
}  // namespace kindling
