// Rules with parameters of bfloat16.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

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

// 1.5 · 0.9 = 1.35; with 0.9 rounded to bfloat16 it would be 1.34375.
TEST_P(LowPrecision, FactorsAreNotRounded) {
  const at::Tensor tensor = at::full({40}, 1.5, at::dtype(at::kBFloat16).device(device_));
  scale_exactly(tensor, 0.9);
  EXPECT_EQ(copy_to(tensor, cpu()).max().item<double>(), 1.3515625);
}

}  // namespace
}  // namespace kindling
