#include "kindling/optim/torch_optimizer.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/optim.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kindling/base/error.h"
#include "optim/optimizer_problem.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

using Theirs = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

struct Rule {
  std::string name;
  std::function<std::unique_ptr<TorchOptimizer>(ParameterGroups)> ours;
  Theirs theirs;
};

template <class Wrapped, class Options>
Rule rule(std::string name, const Options& options) {
  return {.name = std::move(name),
          .ours = [=](ParameterGroups p) { return TorchOptimizer::make<Wrapped>(std::move(p), options); },
          .theirs = [=](std::vector<at::Tensor> p) { return std::make_unique<Wrapped>(p, options); }};
}

// All of LibTorch's that need no closure.
std::vector<Rule> rules() {
  namespace o = torch::optim;
  return {rule<o::SGD>("sgd", o::SGDOptions(0.02)),
          rule<o::SGD>("momentum", o::SGDOptions(0.02).momentum(0.9).weight_decay(0.1)),
          rule<o::Adam>("adam", o::AdamOptions(0.01)),
          rule<o::Adam>("amsgrad", o::AdamOptions(0.01).amsgrad(true)),
          rule<o::AdamW>("adamw", o::AdamWOptions(0.01).weight_decay(0.2)),
          rule<o::Adagrad>("adagrad", o::AdagradOptions(0.05).lr_decay(0.1)),
          rule<o::RMSprop>("rmsprop", o::RMSpropOptions(0.01).centered(true).momentum(0.5))};
}

void take_steps(Optimizer& optimizer, const OptimizerProblem& problem, int first, int end) {
  for (int step = first; step < end; ++step) {
    optimizer.zero_grad();
    problem.backward(step);
    optimizer.step();
  }
}

TEST(TorchOptimizer, EqualsTheWrappedOptimizer) {
  for (const Rule& rule : rules())
    for (const bool partial : {false, true}) {
      OptimizerProblem problem(cpu(), partial), expected(cpu(), partial);
      take_steps(*rule.ours(problem.parameters), problem, 0, 20);
      const auto reference = rule.theirs(expected.parameters);
      for (int step = 0; step < 20; ++step) {
        reference->zero_grad();
        expected.backward(step);
        reference->step();
      }
      for (std::size_t i = 0; i < problem.parameters.size(); ++i)
        EXPECT_TRUE(same(problem.parameters[i], expected.parameters[i])) << rule.name << " " << i;
    }
}

TEST(TorchOptimizer, ResumesBitIdenticallyFromItsSavedState) {
  for (const Rule& rule : rules())
    for (const bool partial : {false, true}) {
      OptimizerProblem whole(cpu(), partial), resumed(cpu(), partial);
      const auto of_whole = rule.ours(whole.parameters), before = rule.ours(resumed.parameters);
      take_steps(*of_whole, whole, 0, 12);
      take_steps(*before, resumed, 0, 5);
      const auto after = rule.ours(resumed.parameters);
      after->load_state_dict(before->state_dict());
      take_steps(*after, resumed, 5, 12);
      for (std::size_t i = 0; i < whole.parameters.size(); ++i)
        EXPECT_TRUE(same(whole.parameters[i], resumed.parameters[i])) << rule.name << " " << i;
    }
}

TEST(TorchOptimizer, SavesItsStateByTheNamesOfTheParameters) {
  OptimizerProblem problem(cpu());
  const auto adam = TorchOptimizer::make<torch::optim::Adam>(
      ParameterGroups{{.parameters = problem.parameters, .names = {"net.weight", "net.bias", "lr"}}},
      torch::optim::AdamOptions(0.01));
  EXPECT_TRUE(adam->state_dict().tensors.empty());
  take_steps(*adam, problem, 0, 3);
  const StateDict state = adam->state_dict();
  ASSERT_NE(state.find("net.weight.exp_avg_sq"), nullptr);
  EXPECT_EQ(state.find("net.weight.exp_avg_sq")->sizes(), problem.parameters[0].sizes());
  EXPECT_EQ(state.metadata.at("net.bias.step"), "int 3");
  EXPECT_EQ(state.metadata.at("lr.step"), "int 3");
  EXPECT_EQ(state.metadata.at("lr.0"), "0.01");
  EXPECT_EQ(state.tensors.size(), 6U);
}

TEST(TorchOptimizer, GivesGroupsTheirOwnOptions) {
  OptimizerProblem problem(cpu()), expected(cpu());
  const auto& p = problem.parameters;
  // 1e-3 is the default of AdamWOptions, which LibTorch's own groups cannot ask for.
  const auto ours = TorchOptimizer::make<torch::optim::AdamW>(
      ParameterGroups{{.parameters = {p[0]}, .lr = 1e-3}, {.parameters = {p[1], p[2]}, .weight_decay = 0.5}},
      torch::optim::AdamWOptions(0.1));
  EXPECT_EQ(ours->lr(0), 1e-3);
  EXPECT_EQ(ours->lr(1), 0.1);
  torch::optim::AdamW first({expected.parameters[0]}, torch::optim::AdamWOptions(1e-3)),
      second({expected.parameters[1], expected.parameters[2]},
             torch::optim::AdamWOptions(0.1).weight_decay(0.5));
  for (int step = 0; step < 5; ++step) {
    ours->zero_grad();
    first.zero_grad();
    second.zero_grad();
    problem.backward(step);
    expected.backward(step);
    ours->step();
    first.step();
    second.step();
  }
  for (std::size_t i = 0; i < p.size(); ++i) EXPECT_TRUE(same(p[i], expected.parameters[i])) << i;
  ours->set_lr(1, 0);
  const at::Tensor before = p[1].detach().clone();
  take_steps(*ours, problem, 5, 6);
  EXPECT_TRUE(same(p[1], before));
}

TEST(TorchOptimizer, TakesOverAnOptimizerWithItsGroups) {
  OptimizerProblem problem(cpu());
  const auto& p = problem.parameters;
  auto sgd =
      std::make_unique<torch::optim::SGD>(std::vector<at::Tensor>{p[0]}, torch::optim::SGDOptions(0.5));
  sgd->add_param_group(torch::optim::OptimizerParamGroup(
      {p[1]}, std::make_unique<torch::optim::SGDOptions>(torch::optim::SGDOptions(0.25))));
  TorchOptimizer ours(std::move(sgd));
  EXPECT_EQ(ours.groups().size(), 2U);
  EXPECT_EQ(ours.lr(1), 0.25);
  const at::Tensor before = p[1].detach().clone();
  p[1].mutable_grad() = at::ones_like(p[1]);  // the first group has no gradients
  ours.step();
  EXPECT_TRUE(same(p[1], before - 0.25));
  EXPECT_THROW(TorchOptimizer(nullptr), ConfigError);
}

TEST(TorchOptimizer, RejectsAStateThatDoesNotMatchAndKeepsItsOwn) {
  OptimizerProblem problem(cpu()), other(cpu());
  const auto make = [](std::vector<at::Tensor> p) {
    return TorchOptimizer::make<torch::optim::Adam>(ParameterGroups(std::move(p)),
                                                    torch::optim::AdamOptions(0.01));
  };
  const auto adam = make(problem.parameters), same_rule = make(other.parameters);
  take_steps(*adam, problem, 0, 2);
  take_steps(*same_rule, other, 0, 2);
  const auto refused = [&](const std::string& wanted, const std::function<void(StateDict&)>& edit) {
    StateDict state = adam->state_dict();
    edit(state);
    const std::string text = error_text<CheckpointError>([&] { adam->load_state_dict(state); });
    EXPECT_NE(text.find(wanted), std::string::npos) << text;
  };
  refused("'0.exp_avg' has the shape", [](StateDict& state) { state.tensors[0].second = at::zeros({7}); });
  refused("'9.exp_avg' is not part", [](StateDict& state) { state.tensors[0].first = "9.exp_avg"; });
  refused("'0.momentum' is not part", [](StateDict& state) { state.tensors[0].first = "0.momentum"; });
  refused("'0.step'", [](StateDict& state) { state.metadata["0.step"] = "int many"; });
  refused("'0.step'", [](StateDict& state) { state.metadata.erase("0.step"); });
  take_steps(*adam, problem, 2, 4);
  take_steps(*same_rule, other, 2, 4);
  EXPECT_TRUE(same(problem.parameters[0], other.parameters[0]));
}

// LibTorch's state of LBFGS has lists.
TEST(TorchOptimizer, WrapsRulesThatNeedAClosure) {
  for (const bool searches : {false, true}) {
    torch::optim::LBFGSOptions options(searches ? 1 : 0.01);
    options.max_iter(3).history_size(4);
    if (searches) options.line_search_fn("strong_wolfe");
    const auto valley = [](const at::Tensor& x) {
      return (x[1] - x[0].pow(2)).pow(2) * 100 + (1 - x[0]).pow(2);
    };
    const auto step = [&](auto& optimizer, const at::Tensor& x, auto closure_step) {
      return closure_step(optimizer, [&optimizer, &x, &valley] {
        optimizer.zero_grad();
        at::Tensor loss = valley(x);
        loss.backward();
        return loss;
      });
    };
    const auto by_ours = [](TorchOptimizer& optimizer, const auto& closure) {
      return optimizer.step_with(closure);
    };
    const auto by_theirs = [](torch::optim::LBFGS& optimizer, const auto& closure) {
      return optimizer.step(closure);
    };
    const auto start = [] { return at::tensor({-1.2, 1.0}).requires_grad_(); };
    const at::Tensor whole = start(), resumed = start();
    torch::optim::LBFGS theirs({whole}, options);
    const auto before = TorchOptimizer::make<torch::optim::LBFGS>(ParameterGroups{resumed}, options);
    EXPECT_TRUE(before->needs_closure());
    for (int i = 0; i < 6; ++i) step(theirs, whole, by_theirs);
    for (int i = 0; i < 3; ++i) step(*before, resumed, by_ours);
    const auto after = TorchOptimizer::make<torch::optim::LBFGS>(ParameterGroups{resumed}, options);
    after->load_state_dict(before->state_dict());
    for (int i = 0; i < 3; ++i) step(*after, resumed, by_ours);
    EXPECT_TRUE(same(whole, resumed)) << searches;
    EXPECT_THROW(after->step(), ConfigError);
  }
  const at::Tensor x = at::ones({2}).requires_grad_();
  EXPECT_THROW(TorchOptimizer::make<torch::optim::LBFGS>(
                   ParameterGroups{{.parameters = {x}, .weight_decay = 0.1}}, torch::optim::LBFGSOptions(1)),
               ConfigError);
}

// A class of a user's own whose state nothing saves.
TEST(TorchOptimizer, RefusesToSaveAStateThatCannotBeWritten) {
  struct State : torch::optim::OptimizerParamState {};
  struct Own : torch::optim::SGD {
    using SGD::SGD;
    at::Tensor step(LossClosure) override {
      for (const at::Tensor& parameter : parameters())
        state_[parameter.unsafeGetTensorImpl()] = std::make_unique<State>();
      return {};
    }
  };
  OptimizerProblem problem(cpu());
  TorchOptimizer ours(std::make_unique<Own>(problem.parameters, torch::optim::SGDOptions(0.1)));
  take_steps(ours, problem, 0, 1);
  EXPECT_ANY_THROW((void)ours.state_dict());
}

}  // namespace
}  // namespace kindling
