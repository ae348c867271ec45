// Fused operators traverse memory in order, so tensors whose layout differs from the parameter's must be
// converted first.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "optim/every_rule.h"

namespace kindling {
namespace {

const char* options_of(const std::string& rule) { return rule == "sgd" ? "momentum = 0.9" : ""; }

class Layouts : public testing::TestWithParam<std::string> {
 protected:
  // Three steps from the same numbers, with what `change` makes of parameter and gradient before each.
  at::Tensor trained(
      const std::function<void(at::Tensor& parameter, at::Tensor& gradient, int step)>& change) {
    at::manual_seed(4);
    at::Tensor parameter = at::randn({6, 4});
    const auto rule = every_rule().at(GetParam())({parameter}, options_of(GetParam()));
    for (int step = 0; step < 3; ++step) {
      at::Tensor gradient = at::randn({6, 4});
      change(parameter, gradient, step);
      parameter.mutable_grad() = gradient;
      rule->step();
    }
    return parameter;
  }
};
std::vector<std::string> rule_names() {
  std::vector<std::string> names;
  for (const auto& [name, rule] : every_rule()) names.push_back(name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Rules, Layouts, testing::ValuesIn(rule_names()),
                         [](const auto& info) { return info.param; });

at::Tensor by_columns(const at::Tensor& tensor) { return tensor.t().contiguous().t(); }

// The norms of lamb and muon add up in the order of memory: last bits.
TEST_P(Layouts, DoNotAffectResults) {
  const at::Tensor expected = trained([](at::Tensor&, at::Tensor&, int) {});
  const auto expect_same = [&](const at::Tensor& parameter) {
    EXPECT_TRUE(at::allclose(parameter, expected, 1e-5, 1e-6)) << parameter - expected;
  };
  expect_same(trained([](at::Tensor&, at::Tensor& gradient, int) { gradient = by_columns(gradient); }));
  expect_same(trained([](at::Tensor&, at::Tensor& gradient, int) {  // with gaps
    gradient = at::cat({gradient, gradient}, 1).narrow(1, 0, 4);
  }));
  expect_same(
      trained([](at::Tensor& parameter, at::Tensor&, int) { parameter.set_data(by_columns(parameter)); }));
  expect_same(
      trained([](at::Tensor& parameter, at::Tensor&, int step) {  // its state has been laid out by then
        if (step == 1) parameter.set_data(by_columns(parameter));
      }));
}

// A fused operator would overwrite the gaps.
TEST_P(Layouts, WithGapsAreRejectedIfTheyWouldBeOverwritten) {
  const at::Tensor all = at::ones({6, 8});
  at::Tensor parameter = all.narrow(1, 0, 4);
  const auto rule = every_rule().at(GetParam())({parameter}, options_of(GetParam()));
  parameter.mutable_grad() = at::ones({6, 4});
  bool is_refused = false;
  try {
    rule->step();
  } catch (const ConfigError& error) {
    is_refused = true;
    EXPECT_NE(std::string(error.what()).find("gaps in memory"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(all.narrow(1, 4, 4).eq(1).all().item<bool>());
  EXPECT_EQ(parameter.eq(1).all().item<bool>(), is_refused);
  const std::string name = GetParam();
  EXPECT_EQ(is_refused, name == "sgd" || name == "adam" || name == "adamw");
}

}  // namespace
}  // namespace kindling
