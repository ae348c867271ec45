// The device rule for all optimizers: a step neither waits for the device nor moves anything.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "fake_accelerator.h"
#include "optim/every_rule.h"

namespace kindling {
namespace {

const std::map<std::string, std::string> kOptionsOfRules{
    {"sgd", "momentum = 0.9\nweight_decay = 0.1"},
    {"rmsprop", "momentum = 0.9\ncentered = true\nweight_decay = 0.1\nmaximize = true"},
    {"adagrad", "lr_decay = 0.1\nweight_decay = 0.1"},
    {"nadam", "weight_decay = 0.1\ndecoupled_weight_decay = true"},
    {"radam", "weight_decay = 0.1"},
    {"muon", "adamw_lr = 0.01"}};

// The second parameter gets its first gradient in the third step, and then in every other one.
void take_steps(Optimizer& optimizer, const StepOptions& options, int num_steps) {
  for (int step = 0; step < num_steps; ++step) {
    optimizer.zero_grad();
    for (std::size_t i = 0; i < optimizer.parameters().size(); ++i)
      if (i != 1 || step % 2 == 0) {
        const at::Tensor& parameter = optimizer.parameters()[i];
        parameter.mutable_grad() = parameter.detach().sin();
      }
    optimizer.step(options);
  }
}

TEST(FakeOptimizers, NoRuleWaitsOrMovesAnything) {
  const at::TensorOptions there = at::device(fake::device()).dtype(at::kFloat);
  const at::Tensor lr = at::full({}, 0.1, there.dtype(at::kDouble)), one = at::ones({}, there),
                   zero = at::zeros({}, there);
  for (const auto& [name, make] : every_rule()) {
    const auto options = kOptionsOfRules.find(name);
    for (const bool tensor_lr : {false, true})
      for (const StepOptions& guard : {StepOptions{}, StepOptions{.grad_scale = one, .found_inf = zero}}) {
        std::vector<at::Tensor> parameters;
        for (const std::int64_t size : {3, 4, 5})
          parameters.push_back(at::full({size, size - 1}, 0.5, there).requires_grad_());
        parameters.push_back(at::full({4}, 0.5, there).requires_grad_());
        const auto optimizer = make(parameters, options == kOptionsOfRules.end() ? "" : options->second);
        if (tensor_lr) optimizer->set_lr(0, lr);
        fake::reset_counts();
        take_steps(*optimizer, guard, 7);
        const fake::Counts counts = fake::counts();
        EXPECT_EQ(counts.host_waits(), 0) << name;
        EXPECT_EQ(counts.device_to_host_copies, 0) << name;
        EXPECT_EQ(counts.host_to_device_copies, 0) << name;
      }
  }
}

}  // namespace
}  // namespace kindling
