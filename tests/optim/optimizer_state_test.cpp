// Groups, state by name, and skipped steps.
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <limits>
#include <map>

#include "kindling/base/error.h"
#include "optim/every_rule.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

struct Net : torch::nn::Module {
  explicit Net(Device device = cpu()) {
    at::manual_seed(3);
    first = register_module("first", torch::nn::Linear(3, 4));
    last = register_module("last", torch::nn::Linear(4, 2));
    to(device);
  }
  void backward(int step) {
    const at::Tensor input = at::linspace(-1, 1, 6).view({2, 3}).add(step * 0.1).to(first->weight.device());
    last->forward(first->forward(input).tanh()).pow(2).sum().backward();
  }
  torch::nn::Linear first{nullptr}, last{nullptr};
};

using Make = std::function<std::unique_ptr<Optimizer>(ParameterGroups)>;

Make rule(const std::string& name, const std::string& options) {
  return [=](ParameterGroups parameters) {
    return every_rule().at(name)(std::move(parameters), "lr = 0.1\n" + options);
  };
}

const std::map<std::string, Make> kRules{
    {"sgd", rule("sgd", "")},
    {"momentum", rule("sgd", "momentum = 0.9\nweight_decay = 0.01")},
    {"adam", rule("adam", "")},
    {"amsgrad", rule("adam", "amsgrad = true")},
    {"adamw", rule("adamw", "")},
    {"rmsprop", rule("rmsprop", "")},
    {"rmsprop, all state", rule("rmsprop", "momentum = 0.9\ncentered = true\nweight_decay = 0.01")},
    {"adagrad", rule("adagrad", "lr_decay = 0.1\ninitial_accumulator_value = 0.1")},
    {"adadelta", rule("adadelta", "")},
    {"adamax", rule("adamax", "")},
    {"nadam", rule("nadam", "")},
    {"nadam, decoupled", rule("nadam", "decoupled_weight_decay = true\nweight_decay = 0.1\nmaximize = true")},
    {"radam", rule("radam", "betas = [0.9, 0.95]")},
    {"lion", rule("lion", "")},
    {"lamb", rule("lamb", "")},
    {"muon", rule("muon", "adamw_lr = 0.01")}};

void train(Net& net, Optimizer& optimizer, int first, int end, const StepOptions& options = {}) {
  for (int step = first; step < end; ++step) {
    optimizer.zero_grad();
    net.backward(step);
    optimizer.step(options);
  }
}

::testing::AssertionResult same_parameters(const Net& a, const Net& b) {
  for (std::size_t i = 0; i < a.parameters().size(); ++i)
    if (!same(a.parameters()[i].detach(), b.parameters()[i].detach()))
      return ::testing::AssertionFailure() << "parameter " << i << " differs";
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult same_state(const Optimizer& a, const Optimizer& b) {
  const StateDict state = a.state_dict(), other = b.state_dict();
  if (state.tensors.size() != other.tensors.size())
    return ::testing::AssertionFailure() << state.tensors.size() << " and " << other.tensors.size();
  for (const auto& [name, tensor] : state.tensors)
    if (other.find(name) == nullptr || !same(tensor, *other.find(name)))
      return ::testing::AssertionFailure() << name << " differs";
  return ::testing::AssertionSuccess();
}

class OptimizerState : public OnDevice {};
KINDLING_RUN_ON_DEVICES(OptimizerState);

TEST_P(OptimizerState, ResumesBitIdenticallyFromASavedState) {
  for (const auto& [name, make] : kRules) {
    const auto whole = std::make_shared<Net>(device_), first = std::make_shared<Net>(device_),
               second = std::make_shared<Net>(device_);
    const auto optimizer = make(*whole), before = make(*first), after = make(*second);
    for (const auto& net : {whole, first}) net->first->weight.requires_grad_(false);  // joins later
    train(*whole, *optimizer, 0, 1);
    train(*first, *before, 0, 1);
    for (const auto& net : {whole, first}) net->first->weight.requires_grad_(true);
    train(*whole, *optimizer, 1, 9);
    train(*first, *before, 1, 3);
    {
      const at::NoGradGuard no_grad;
      for (std::size_t i = 0; i < 4; ++i) second->parameters()[i].copy_(first->parameters()[i]);
    }
    after->load_state_dict(before->state_dict());
    EXPECT_TRUE(same_state(*after, *before)) << name;
    train(*first, *before, 3, 9);  // the loaded state is a copy
    train(*second, *after, 3, 9);
    EXPECT_TRUE(same_parameters(*second, *whole)) << name;
  }
}

TEST_P(OptimizerState, GroupsHaveRatesAndDecaysOfTheirOwn) {
  for (const auto& [name, make] : kRules) {
    const auto net = std::make_shared<Net>(device_), slow = std::make_shared<Net>(device_),
               fast = std::make_shared<Net>(device_);
    const auto grouped = make({{.parameters = net->first->parameters(), .lr = 0.01, .weight_decay = 0.2},
                               {.parameters = net->last->parameters()}});
    EXPECT_EQ(grouped->lr(0), 0.01);
    EXPECT_EQ(grouped->lr(1), 0.1);
    EXPECT_EQ(grouped->groups()[0].weight_decay, 0.2);
    const auto of_slow =
        make(ParameterGroups{{.parameters = slow->parameters(), .lr = 0.01, .weight_decay = 0.2}});
    const auto of_fast = make(fast->parameters());
    train(*net, *grouped, 0, 1);
    train(*slow, *of_slow, 0, 1);
    train(*fast, *of_fast, 0, 1);
    EXPECT_TRUE(same(net->first->weight.detach(), slow->first->weight.detach())) << name;
    EXPECT_TRUE(same(net->last->weight.detach(), fast->last->weight.detach())) << name;
    EXPECT_FALSE(same(net->first->weight.detach(), fast->first->weight.detach())) << name;
  }
}

TEST_P(OptimizerState, LearningRateMayBeATensor) {
  for (const auto& [name, make] : kRules) {
    const auto number = std::make_shared<Net>(device_), tensor = std::make_shared<Net>(device_);
    const auto with_number = make(*number), with_tensor = make(*tensor);
    const at::Tensor lr = at::full({}, 0.25, at::kDouble).to(device_);
    with_tensor->set_lr(0, lr);
    for (int step = 0; step < 3; ++step) {
      with_number->set_lr(0.25 / (step + 1));
      lr.fill_(0.25 / (step + 1));
      train(*number, *with_number, step, step + 1);
      train(*tensor, *with_tensor, step, step + 1);
    }
    // Foreach operators multiply by a tensor first and subtract then: a last bit of float32 each time.
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_TRUE(close(tensor->parameters()[i], number->parameters()[i], 1e-6)) << name;
  }
}

// As in one-cycle schedules. SGD may begin without one.
TEST_P(OptimizerState, MomentumCanBeSet) {
  const auto expect_same = [&](const Make& with_it, const Make& without) {
    const auto expected = std::make_shared<Net>(device_), net = std::make_shared<Net>(device_),
               resumed = std::make_shared<Net>(device_);
    const auto reference = with_it(*expected), optimizer = without(*net), after = without(*resumed);
    ASSERT_TRUE(optimizer->has_momentum());
    optimizer->set_momentum(reference->momentum());
    after->load_state_dict(optimizer->state_dict());
    EXPECT_EQ(after->momentum(), reference->momentum());
    train(*expected, *reference, 0, 3);
    train(*net, *optimizer, 0, 3);
    EXPECT_TRUE(same_parameters(*net, *expected));
  };
  expect_same([](ParameterGroups p) { return std::make_unique<Sgd>(p, SgdOptions{.momentum = 0.7}); },
              [](ParameterGroups p) { return std::make_unique<Sgd>(p, SgdOptions{}); });
  expect_same(
      [](ParameterGroups p) {
        return std::make_unique<Adam>(p, AdamOptions{.betas = {0.7, 0.99}});
      },
      [](ParameterGroups p) {
        return std::make_unique<Adam>(p, AdamOptions{.betas = {0.9, 0.99}});
      });
}

// A step whose gradients are not finite, as reported by found_inf.
void poisoned_step(Net& net, Optimizer& optimizer, const at::Tensor& found_inf) {
  optimizer.zero_grad();
  net.backward(9);
  for (const at::Tensor& gradient : optimizer.gradients())
    gradient.fill_(std::numeric_limits<float>::quiet_NaN());
  optimizer.step({.found_inf = found_inf});
}

TEST_P(OptimizerState, SkippedStepChangesNothingAndIsNotCounted) {
  const at::Tensor yes = at::ones({}, at::device(device_).dtype(at::kFloat)), no = at::zeros_like(yes);
  for (const auto& [name, make] : kRules) {
    const auto plain = std::make_shared<Net>(device_), guarded = std::make_shared<Net>(device_);
    const auto of_plain = make(*plain), of_guarded = make(*guarded);
    EXPECT_TRUE(of_guarded->can_skip()) << name;
    poisoned_step(*guarded, *of_guarded, yes);  // also as the very first one
    EXPECT_TRUE(same_parameters(*guarded, *plain)) << name;
    for (int step = 0; step < 8; ++step) {
      // One parameter has no gradient for a while: its counter separates from the others' in a skipped step.
      guarded->first->bias.requires_grad_(step < 3 || step > 4);
      plain->first->bias.requires_grad_(step < 3 || step > 4);
      poisoned_step(*guarded, *of_guarded, yes);
      train(*plain, *of_plain, step, step + 1);
      train(*guarded, *of_guarded, step, step + 1, {.found_inf = no});
      poisoned_step(*guarded, *of_guarded, yes);
    }
    EXPECT_TRUE(same_parameters(*guarded, *plain)) << name;
    EXPECT_TRUE(same_state(*of_guarded, *of_plain)) << name;
  }
}

TEST_P(OptimizerState, GradientsAreDividedByTheScale) {
  const at::Tensor scale = at::full({}, 4.F, at::device(device_));
  for (const auto& [name, make] : kRules) {
    const auto plain = std::make_shared<Net>(device_), scaled = std::make_shared<Net>(device_);
    const auto of_plain = make(*plain), of_scaled = make(*scaled);
    train(*plain, *of_plain, 0, 1);
    scaled->backward(0);
    for (const at::Tensor& gradient : of_scaled->gradients()) gradient.mul_(4);
    of_scaled->step({.grad_scale = scale});
    // A power of two: exact. CUDA compiles its kernels with and without a scale to different roundings.
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_TRUE(same_on_cpu(scaled->parameters()[i], plain->parameters()[i])) << name;
  }
}

TEST(OptimizerNames, AreTheModels) {
  const auto net = std::make_shared<Net>();
  Adam from_model(*net), from_list(net->parameters());
  EXPECT_EQ(from_model.names(),
            (std::vector<std::string>{"first.weight", "first.bias", "last.weight", "last.bias"}));
  EXPECT_EQ(from_list.names(), (std::vector<std::string>{"0", "1", "2", "3"}));
  from_list.take_names(*net);
  EXPECT_EQ(from_list.names(), from_model.names());
  train(*net, from_model, 0, 1);
  const StateDict state = from_model.state_dict();
  ASSERT_NE(state.find("last.bias.exp_avg"), nullptr);
  EXPECT_EQ(state.find("last.bias.exp_avg")->sizes(), (at::IntArrayRef{2}));
  EXPECT_EQ(state.find("last.bias.step")->item<float>(), 1);
}

TEST(OptimizerNames, RejectAStateThatDoesNotMatchAndChangeNothing) {
  const auto net = std::make_shared<Net>();
  Adam adam(*net);
  train(*net, adam, 0, 1);
  const at::Tensor before = adam.state_dict().find("first.bias.exp_avg")->clone();
  StateDict wrong;
  wrong.tensors = {{"first.bias.exp_avg", at::zeros({7})}, {"elsewhere.exp_avg", at::zeros({4})}};
  EXPECT_EQ(
      error_text<CheckpointError>([&] { adam.load_state_dict(wrong); }),
      "optimizer: the state does not fit: 'first.bias.exp_avg' has the shape [7], 'elsewhere.exp_avg' is not "
      "part of its state; expected: the state of the same optimizer of the same model");
  EXPECT_TRUE(same(*adam.state_dict().find("first.bias.exp_avg"), before));
  StateDict half;
  half.tensors = {{"first.bias.exp_avg", at::zeros({4})}};
  EXPECT_THROW(adam.load_state_dict(half), CheckpointError);
}

TEST(OptimizerState, RefusesSavedNumbersThatAreNotNumbers) {
  const auto net = std::make_shared<Net>();
  Adam adam(*net);
  train(*net, adam, 0, 1);
  const StateDict saved = copy_to(adam.state_dict(), cpu());
  train(*net, adam, 1, 2);
  const at::Tensor before = adam.state_dict().find("first.bias.exp_avg")->clone();
  for (const std::string key : {"lr.0", "momentum"}) {
    StateDict broken = saved;
    broken.metadata.at(key) = "0.00x";
    EXPECT_NE(
        error_text<CheckpointError>([&] { adam.load_state_dict(broken); }).find("'" + key + "': '0.00x'"),
        std::string::npos);
    EXPECT_TRUE(same(*adam.state_dict().find("first.bias.exp_avg"), before)) << "nothing has changed";
  }
}

TEST(OptimizerGroups, RefuseWhatContradictsItself) {
  const at::Tensor weight = at::ones({2}).requires_grad_();
  EXPECT_THROW(Sgd({weight, weight}), ConfigError);
  EXPECT_THROW(Sgd(ParameterGroups{{.parameters = {weight}, .names = {"a", "b"}}}), ConfigError);
  // Whether its buffer has begun would be known to the device alone.
  Sgd dampened({weight}, {.momentum = 0.9, .dampening = 0.5});
  weight.sum().backward();
  EXPECT_THROW(dampened.step({.found_inf = at::zeros({})}), ConfigError);
}

// A parameter that is frozen at first belongs to the optimizer, which has no state for it until it is
// trained.
TEST(OptimizerGroups, TakeFrozenParametersInAndSkipThem) {
  const auto net = std::make_shared<Net>();
  net->first->weight.requires_grad_(false);
  Adam adam(*net);
  train(*net, adam, 0, 2);
  EXPECT_EQ(adam.state_dict().find("first.weight.exp_avg"), nullptr);
  const at::Tensor before = net->first->weight.detach().clone();
  net->first->weight.requires_grad_(true);
  train(*net, adam, 2, 3);
  EXPECT_FALSE(same(net->first->weight.detach(), before));
  EXPECT_EQ(adam.state_dict().find("first.weight.step")->item<float>(), 1);
  EXPECT_EQ(adam.state_dict().find("first.bias.step")->item<float>(), 3);
}

}  // namespace
}  // namespace kindling
