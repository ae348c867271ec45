// What the optimizers say to wrong options, and to gradients and parameters they cannot take.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "optim/every_rule.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

at::Tensor a_matrix() { return at::full({3, 2}, 0.5).requires_grad_(); }

TEST(OptimizerOptions, NameWrongValues) {
  const std::vector<at::Tensor> weights{a_matrix()};
  const auto text = [&](auto make) { return error_text<ConfigError>(make); };
  EXPECT_EQ(text([&] { RmsProp(weights, {.alpha = 2}); }),
            "rmsprop: alpha is 2.0; expected: a number >= 0 and <= 1");
  EXPECT_EQ(text([&] { Adagrad(weights, {.lr_decay = -1}); }),
            "adagrad: lr_decay is -1.0; expected: a number >= 0");
  EXPECT_EQ(text([&] { Adadelta(weights, {.rho = 1.5}); }),
            "adadelta: rho is 1.5; expected: a number >= 0 and <= 1");
  EXPECT_EQ(text([&] {
              Adamax(weights, {.betas = {1, 0.9}});
            }),
            "adamax: betas[0] is 1.0; expected: a number >= 0 and < 1");
  EXPECT_EQ(text([&] { NAdam(weights, {.momentum_decay = -1}); }),
            "nadam: momentum_decay is -1.0; expected: a number >= 0");
  EXPECT_EQ(text([&] {
              RAdam(weights, {.betas = {0.9, 1}});
            }),
            "radam: betas[1] is 1.0; expected: a number >= 0 and < 1");
  EXPECT_EQ(text([&] { Lion(weights, {.lr = -1}); }), "lion: lr is -1.0; expected: a number >= 0");
  EXPECT_EQ(text([&] { Lamb(weights, {.eps = -1}); }), "lamb: eps is -1.0; expected: a number >= 0");
  EXPECT_EQ(text([&] { Muon(weights, {.adjust_lr_fn = "mine"}); }),
            "muon: adjust_lr_fn is \"mine\"; expected: one of \"original\", \"match_rms_adamw\"");
  EXPECT_EQ(text([&] {
              Muon(weights, {.ns_coefficients = {1, 2}});
            }),
            "muon: ns_coefficients has 2 numbers; expected: 3");
}

TEST(OptimizerOptions, MuonNamesParametersThatAreNotMatrices) {
  const at::Tensor matrix = a_matrix(), bias = at::ones({2}).requires_grad_();
  const ParameterGroups both{{.parameters = {matrix, bias}, .names = {"net.weight", "net.bias"}}};
  EXPECT_EQ(
      error_text<ConfigError>([&] { Muon muon(both); }),
      "muon: parameters that are not matrices: 'net.bias'; expected: parameters with two dimensions; set "
      "adamw_lr, such as 3e-4, to let AdamW update them, or use a separate optimizer for them");
  Muon muon(both, {.lr = 0.02, .weight_decay = 0.2, .adamw_lr = 0.001});
  AdamW adamw({bias.detach().clone().requires_grad_()}, {.lr = 0.001, .weight_decay = 0.2});
  for (int step = 0; step < 3; ++step) {
    muon.set_lr(0.02 / (step + 1));  // moves both
    adamw.set_lr(0.001 / (step + 1));
    matrix.mutable_grad() = at::ones_like(matrix);
    bias.mutable_grad() = bias.detach().sin();
    adamw.parameters()[0].mutable_grad() = adamw.parameters()[0].detach().sin();
    muon.step();
    adamw.step();
  }
  EXPECT_TRUE(same(bias, adamw.parameters()[0]));
}

// Biases often start so: the ratio of their length to the step's would keep them there.
TEST(LambRatio, IsOneForWeightsOfZero) {
  const at::Tensor bias = at::zeros({2}, at::kDouble).requires_grad_();
  Lamb lamb({bias}, {.lr = 0.25, .eps = 0});
  bias.mutable_grad() = at::tensor({3., -0.5}, at::kDouble);
  lamb.step();
  EXPECT_TRUE(close(bias, at::tensor({-0.25, 0.25}, at::kDouble), 1e-15));  // Adam's first step is the sign
}

// Of an embedding of 4 rows that names row 2 twice.
at::Tensor sparse_gradient(Device device, const at::Tensor& values) {
  return at::sparse_coo_tensor(at::tensor({2, 0, 2}, at::kLong).unsqueeze(0).to(device), values, {4, 2});
}

class SparseGradients : public OnDevice {
 protected:
  // Two steps with the sparse gradient and two with the same one made dense.
  void expect_as_dense(const std::string& name, const std::string& options,
                       const StepOptions& guard = {}) const {
    std::vector<at::Tensor> tables;
    for (const bool is_sparse : {true, false}) {
      const at::Tensor table = at::linspace(0.1, 0.8, 8).view({4, 2}).to(device_).requires_grad_(),
                       other = at::ones({2}, at::device(device_)).requires_grad_();
      const auto optimizer = every_rule().at(name)({table, other}, options);
      for (int step = 0; step < 2; ++step) {
        const at::Tensor gradient = sparse_gradient(device_, at::linspace(-1, 1, 6).view({3, 2}).to(device_));
        table.mutable_grad() = is_sparse ? gradient : gradient.to_dense();
        other.mutable_grad() = at::ones_like(other);
        optimizer->step(guard);
      }
      EXPECT_LT(other[0].item<float>(), 1);
      tables.push_back(table);
    }
    EXPECT_TRUE(close(tables[0], tables[1], 1e-6)) << name << " " << options;  // sums in another order
  }
};
KINDLING_RUN_ON_DEVICES(SparseGradients);

TEST_P(SparseGradients, AreTakenBySgdAndAdagrad) {
  if (!device_.is_cpu() && !device_.is_cuda()) GTEST_SKIP() << "no sparse tensors here";
  const at::Tensor scale = at::full({}, 4.F, at::device(device_)), no = at::zeros_like(scale);
  expect_as_dense("sgd", "lr = 0.1");
  expect_as_dense("sgd", "lr = 0.1", {.grad_scale = scale, .found_inf = no});
  expect_as_dense("adagrad", "lr = 0.1\nlr_decay = 0.1");
  expect_as_dense("adagrad", "lr = 0.1", {.grad_scale = scale, .found_inf = no});
}

TEST_P(SparseGradients, ThatAreNotFiniteAreSkipped) {
  if (!device_.is_cpu() && !device_.is_cuda()) GTEST_SKIP() << "no sparse tensors here";
  for (const char* name : {"sgd", "adagrad"}) {
    const at::Tensor table = at::ones({4, 2}, at::device(device_)).requires_grad_();
    const auto optimizer = every_rule().at(name)({table}, "");
    table.mutable_grad() = sparse_gradient(device_, at::full({3, 2}, HUGE_VAL, at::device(device_)));
    optimizer->step({.found_inf = at::ones({}, at::device(device_))});
    EXPECT_TRUE(same(table, at::ones({4, 2}))) << name;
  }
}

TEST(SparseGradient, IsRejectedByNameByOtherRules) {
  for (const auto& [name, make] : every_rule())
    for (const char* options : {"", "weight_decay = 0.1"}) {
      if ((name == "sgd" || name == "adagrad") && std::string(options).empty()) continue;
      const at::Tensor table = at::ones({4, 2}).requires_grad_();
      const auto optimizer =
          make(ParameterGroups{{.parameters = {table}, .names = {"embedding.weight"}}}, options);
      table.mutable_grad() = sparse_gradient(cpu(), at::ones({3, 2}));
      EXPECT_EQ(error_text<ConfigError>([&] { optimizer->step(); }),
                "optimizer: the gradient of 'embedding.weight' is sparse; expected: a dense one; create the "
                "embedding without sparse(true), or train it with sgd or adagrad")
          << name;
      EXPECT_TRUE(same(table, at::ones({4, 2}))) << name;
    }
}

}  // namespace
}  // namespace kindling
