// Complex parameters are pairs of real numbers to every rule, as in PyTorch.
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/optim.h>

#include <array>

#include "kindling/base/error.h"
#include "kindling/optim/clip.h"
#include "kindling/optim/lbfgs.h"
#include "kindling/optim/python_optimizer.h"
#include "kindling/optim/torch_optimizer.h"
#include "kindling/tensors/state_dict.h"
#include "optim/every_rule.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

// As fixtures/make_trajectories.py has it.
constexpr int kComplexSteps = 8, kLateComplexStep = 4, kSavedAfter = 5;

at::Tensor pairs_of(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor) : tensor;
}

// Weights that are complex numbers, or the same as pairs of real ones; the last one is a scalar.
class PairProblem {
 public:
  PairProblem(Device device, bool is_complex) : is_complex_(is_complex) {
    const std::vector<std::vector<std::int64_t>> shapes{{2, 3, 2}, {5, 1, 2}, {3, 2}, {2}};
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const at::Tensor count = at::arange(c10::multiply_integers(shapes[i]), at::kDouble);
      const at::Tensor start = (count * 0.37 + 0.2 * static_cast<double>(i) + 0.1).remainder(1.7) - 0.8;
      parameters_.push_back(typed(start.view(shapes[i]).to(at::kFloat).to(device)).requires_grad_());
    }
  }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

  void step(Optimizer& optimizer, int step, const StepOptions& options = {}) const {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const bool has_one = i + 1 < parameters_.size() || step >= kLateComplexStep;
      parameters_[i].mutable_grad() = has_one ? typed(gradient(i, step)) : at::Tensor();
    }
    optimizer.step(options);
  }
  at::Tensor gradient(std::size_t i, int step) const {
    return (pairs_of(parameters_[i].detach()) * 2 + 0.3 * (step % 5) - 0.5).sin();
  }
  at::Tensor weights() const {
    std::vector<at::Tensor> rows;
    for (const at::Tensor& parameter : parameters_) rows.push_back(pairs_of(parameter.detach()).reshape(-1));
    return at::cat(rows);
  }
  at::Tensor loss() const {  // chained squares
    std::vector<at::Tensor> rows;
    for (const at::Tensor& parameter : parameters_) rows.push_back(pairs_of(parameter).reshape(-1));
    const at::Tensor x = at::cat(rows), before = x.narrow(0, 0, x.numel() - 1),
                     after = x.narrow(0, 1, x.numel() - 1);
    return (after - before.pow(2)).pow(2).sum() + (1 - x).pow(2).sum() * 0.1;
  }

 private:
  at::Tensor typed(const at::Tensor& pairs) const { return is_complex_ ? at::view_as_complex(pairs) : pairs; }

  bool is_complex_;
  std::vector<at::Tensor> parameters_;
};

std::filesystem::path fixture(const std::string& name) {
  return std::filesystem::path(KINDLING_OPTIM_FIXTURES) / name;
}

class ComplexParameters : public OnDevice {};
KINDLING_RUN_ON_DEVICES(ComplexParameters);

// With each set of options for which there are PyTorch's numbers of real parameters.
TEST_P(ComplexParameters, TrainAsPairsOfRealNumbers) {
  const StateDict cases = load_safetensors(fixture("trajectories.safetensors"));
  for (const auto& [name, options] : cases.metadata) {
    const std::string rule = name.substr(0, name.find('.'));
    if (!every_rule().contains(rule) || rule == "muon" || name.ends_with(".state")) continue;
    SCOPED_TRACE(name);
    const PairProblem numbers(device_, true), pairs(device_, false);
    const auto ours = every_rule().at(rule)(numbers.parameters(), options),
               expected = every_rule().at(rule)(pairs.parameters(), options);
    for (int step = 0; step < kComplexSteps; ++step) {
      numbers.step(*ours, step);
      pairs.step(*expected, step);
    }
    EXPECT_TRUE(same(numbers.weights(), pairs.weights()));
    const StateDict state = ours->state_dict(), state_of_pairs = expected->state_dict();
    ASSERT_EQ(state.tensors.size(), state_of_pairs.tensors.size());
    for (std::size_t i = 0; i < state.tensors.size(); ++i) {
      const auto& [key, values] = state.tensors[i];
      const bool is_of_shape = !key.ends_with(".step") && !key.ends_with(".mu_product");
      EXPECT_EQ(values.is_complex(), is_of_shape) << key;
      EXPECT_TRUE(same(pairs_of(values), state_of_pairs.tensors[i].second)) << key;
    }
  }
}

// Last bits of float32 (6e-8) of weights up to 3, which 8 steps pass on. For SGD, PyTorch's complex products
// round differently from real ones.
TEST_P(ComplexParameters, MatchPyTorch) {
  const StateDict reference = load_safetensors(fixture("complex_trajectories.safetensors"));
  int num_rules = 0;
  for (const auto& [rule, make] : every_rule()) {
    const at::Tensor* expected = reference.find(rule);
    if (expected == nullptr) continue;
    ++num_rules;
    const PairProblem problem(device_, true);
    const auto optimizer = make(problem.parameters(), reference.metadata.at(rule));
    for (int step = 0; step < kComplexSteps; ++step) {
      problem.step(*optimizer, step);
      EXPECT_TRUE(close(problem.weights(), (*expected)[step], 1e-6)) << rule << ", step " << step;
    }
  }
  EXPECT_EQ(num_rules, 9);
}

// In float32 the curvature quotients amplify last bits, so the first steps count.
TEST_P(ComplexParameters, OfLbfgsMatchPyTorch) {
  const StateDict reference = load_safetensors(fixture("complex_trajectories.safetensors"));
  const PairProblem problem(device_, true);
  const auto optimizer =
      rule_from_text<Lbfgs, LbfgsOptions>()(problem.parameters(), reference.metadata.at("lbfgs"));
  for (int step = 0; step < 3; ++step) {
    optimizer->step_with([&] {
      optimizer->zero_grad();
      at::Tensor loss = problem.loss();
      loss.backward();
      return loss;
    });
    EXPECT_TRUE(close(problem.weights(), (*reference.find("lbfgs"))[step], 1e-4)) << step;
  }
}

TEST_P(ComplexParameters, ContinueWithPythonsState) {
  const StateDict reference = load_safetensors(fixture("complex_trajectories.safetensors"));
  const at::Tensor& expected = *reference.find("adamw");
  PairProblem problem(device_, true);
  std::int64_t at = 0;
  for (const at::Tensor& parameter : problem.parameters()) {
    const at::Tensor pairs = pairs_of(parameter.detach());
    pairs.copy_(expected[kSavedAfter - 1].narrow(0, at, pairs.numel()).view(pairs.sizes()));
    at += pairs.numel();
  }
  const auto optimizer = every_rule().at("adamw")(problem.parameters(), reference.metadata.at("adamw"));
  load_python_optimizer(*optimizer, fixture("complex_adamw.pt"));
  for (int step = kSavedAfter; step < kComplexSteps; ++step) problem.step(*optimizer, step);
  EXPECT_TRUE(close(problem.weights(), expected[kComplexSteps - 1], 1e-6));

  const Scratch scratch;
  save_python_optimizer(*optimizer, scratch / "written.pt");
  const PairProblem other(device_, true);
  const auto loaded = every_rule().at("adamw")(other.parameters(), reference.metadata.at("adamw"));
  load_python_optimizer(*loaded, scratch / "written.pt");
  const StateDict ours = optimizer->state_dict(), theirs = loaded->state_dict();
  ASSERT_EQ(ours.tensors.size(), theirs.tensors.size());
  for (std::size_t i = 0; i < ours.tensors.size(); ++i)
    EXPECT_TRUE(same(ours.tensors[i].second, theirs.tensors[i].second)) << ours.tensors[i].first;
}

// A real value would lose the imaginary parts.
TEST_P(ComplexParameters, RefuseRealState) {
  const PairProblem problem(device_, true);
  const auto optimizer = every_rule().at("adam")(problem.parameters(), "");
  problem.step(*optimizer, kLateComplexStep);
  StateDict state = optimizer->state_dict();
  for (auto& [name, values] : state.tensors)
    if (name == "2.exp_avg") values = at::real(values);
  EXPECT_NE(error_text<CheckpointError>([&] {
              optimizer->load_state_dict(state);
            }).find("'2.exp_avg' has the shape"),
            std::string::npos);
}

// Backward of a product with a conjugate leaves the conjugation to the reader. The fake accelerator has
// neither such views nor sparse tensors.
TEST(ComplexGradients, MayBeConjugatedViews) {
  for (const char* rule : {"sgd", "adam", "rmsprop"}) {
    const PairProblem lazy(cpu(), true), plain(cpu(), true);
    const auto ours = every_rule().at(rule)(lazy.parameters(), ""),
               expected = every_rule().at(rule)(plain.parameters(), "");
    for (std::size_t i = 0; i < lazy.parameters().size(); ++i) {
      const at::Tensor gradient = at::view_as_complex(lazy.gradient(i, 0));
      lazy.parameters()[i].mutable_grad() = gradient.clone().conj();
      plain.parameters()[i].mutable_grad() = gradient.conj().resolve_conj();
    }
    const at::Tensor norm = clip_grad_norm(ours->gradients(), 0.5);
    EXPECT_TRUE(same(norm, clip_grad_norm(expected->gradients(), 0.5)));
    clip_grad_value(ours->gradients(), 0.1);
    clip_grad_value(expected->gradients(), 0.1);
    ours->step();
    expected->step();
    EXPECT_TRUE(same(lazy.weights(), plain.weights())) << rule;
  }
}

// Rows of an embedding, one of them twice.
TEST(ComplexGradients, MayBeSparse) {
  for (const char* rule : {"sgd", "adagrad"}) {
    std::vector<at::Tensor> trained;
    for (const bool is_sparse : {false, true}) {
      const at::Tensor weight = at::view_as_complex(at::ones({4, 3, 2})).requires_grad_();
      const at::Tensor rows = at::tensor({1, 3, 1}, at::kLong).view({1, 3}),
                       values = at::view_as_complex(at::linspace(-1, 1, 18).view({3, 3, 2})),
                       gradient = at::sparse_coo_tensor(rows, values, {4, 3});
      weight.mutable_grad() = is_sparse ? gradient : gradient.to_dense();
      every_rule().at(rule)({weight}, "lr = 0.5")->step();
      trained.push_back(at::view_as_real(weight.detach()));
    }
    EXPECT_TRUE(close(trained[1], trained[0], 1e-6)) << rule;
  }
}

TEST_P(ComplexParameters, AreKeptBySkippedSteps) {
  const at::Tensor bad = at::ones({}, at::device(device_));
  for (const auto& [rule, make] : every_rule()) {
    if (rule == "muon") continue;
    const PairProblem problem(device_, true);
    const auto optimizer = make(problem.parameters(), "");
    problem.step(*optimizer, 0);
    const at::Tensor before = problem.weights().clone();
    problem.step(*optimizer, 1, {.found_inf = bad});
    EXPECT_TRUE(same(problem.weights(), before)) << rule;
    problem.step(*optimizer, 1);
    EXPECT_FALSE(problem.weights().equal(before)) << rule;
  }
}

// 3 + 4i and 12: norm 13, as torch.nn.utils.clip_grad_norm_ has it.
TEST_P(ComplexParameters, AreClippedByTheNormOfTheirNumbers) {
  const at::Tensor numbers = at::view_as_complex(at::tensor({3.f, 4.f}).view({1, 2}).to(device_)),
                   real = at::full({1}, 12.f, at::device(device_));
  EXPECT_TRUE(close(clip_grad_norm(std::array{numbers, real}, 6.5), at::scalar_tensor(13, at::kFloat), 1e-6));
  // The constant 1e-6 added to the norm and float rounding, both below 1e-6 of the value.
  EXPECT_TRUE(close(at::view_as_real(numbers), at::tensor({1.5f, 2.f}).view({1, 2}), 1e-6));
  EXPECT_TRUE(close(real, at::full({1}, 6.f), 1e-6));
  clip_grad_value(std::array{numbers}, 1.75);
  EXPECT_TRUE(close(at::view_as_real(numbers), at::tensor({1.5f, 1.75f}).view({1, 2}), 1e-6));
}

TEST(ComplexRefusals, NameTheOptimizersThatNeedRealParameters) {
  const std::vector<at::Tensor> parameters{at::zeros({2, 3}, at::kComplexFloat).requires_grad_()};
  EXPECT_NE(error_text<ConfigError>([&] { every_rule().at("muon")(parameters, ""); }).find("'0' is complex"),
            std::string::npos);
  namespace o = torch::optim;
  const auto wrapped = [&] { TorchOptimizer::make<o::RMSprop>(parameters, o::RMSpropOptions(0.1)); };
  EXPECT_NE(error_text<ConfigError>(wrapped).find("a complex parameter"), std::string::npos);
  EXPECT_NO_THROW(TorchOptimizer::make<o::SGD>(parameters, o::SGDOptions(0.1)));
}

}  // namespace
}  // namespace kindling
