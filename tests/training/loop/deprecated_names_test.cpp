// Names of the last release still work, overridden ones too.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "kindling/device/device.h"
#include "kindling/nn/carried_state.h"
#include "kindling/optim/optimizer.h"
#include "training/loop/small_fit.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace kindling {
namespace {

struct FormerlyStatic : Slope {
  bool static_step() const override { return true; }
};

struct FormerRule : Optimizer {
  explicit FormerRule(ParameterGroups groups) : Optimizer(std::move(groups), 0.1) {}
  bool takes_tensors() const override { return true; }
  void update(const Update& update) override {
    handles = handles_step_options() && update.lr.tensor.defined();
  }
  bool handles = false;
};

struct FormerHandlingRule : Optimizer {
  explicit FormerHandlingRule(ParameterGroups groups) : Optimizer(std::move(groups), 0.1) {}
  bool heeds_options() const override { return true; }
  void update(const Update& update) override { found_inf = update.options.found_inf; }
  at::Tensor found_inf;
};

at::Tensor parameter() {
  at::Tensor weight = at::zeros({1});
  weight.requires_grad_().mutable_grad() = at::ones({1});
  return weight;
}

TEST(DeprecatedNames, TakeEffectWhenOverridden) {
  EXPECT_TRUE(FormerlyStatic().has_static_graph());
  FormerRule rule(ParameterGroups{parameter()});
  EXPECT_TRUE(rule.supports_tensor_lr());
  rule.set_lr(0, at::full({}, 0.5));
  rule.step();
  EXPECT_TRUE(rule.handles);
  FormerHandlingRule handling(ParameterGroups{parameter()});
  EXPECT_FALSE(handling.supports_tensor_lr());
  const at::Tensor found_inf = at::zeros({});
  handling.step({.found_inf = found_inf});
  EXPECT_TRUE(handling.found_inf.defined());
}

TEST(DeprecatedNames, CallTheNewOnes) {
  Batch batch{at::ones({3, 2})};
  EXPECT_EQ(batch.num_counted(), 3);
  batch.count_nothing();
  EXPECT_FALSE(batch.counts());
  EXPECT_EQ(batch.num_counted(), 0);
  EXPECT_EQ(why_no_more_gpus(), gpu_unavailable_reason());
  EXPECT_EQ(ProcessGroup::of_threads(2).size(), 2);
}

}  // namespace
}  // namespace kindling

#pragma GCC diagnostic pop
