// Steps whose gradients are computed twice.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>

#include "kindling/base/error.h"
#include "kindling/nn/manual_module.h"
#include "support/device_under_test.h"
#include "support/rank_threads.h"
#include "support/tensor_matchers.h"
#include "training/loop/recurrent_fit.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

// A model with what a second pass must restore: random numbers and running statistics.
class NoisyNet : public Module {
 public:
  NoisyNet() {
    net = register_module(
        "net", torch::nn::Sequential(torch::nn::Linear(1, 6), torch::nn::BatchNorm1d(6), torch::nn::ReLU(),
                                     torch::nn::Dropout(0.3), torch::nn::Linear(6, 1)));
  }
  at::Tensor forward(const at::Tensor& x) override { return net->forward(x); }
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels) override {
    return at::mse_loss(outputs, labels);
  }
  bool has_static_graph() const override { return true; }

  torch::nn::Sequential net{nullptr};
};

// Flips one bit of a gradient in one of its computations, counted from 1.
class FaultyNet : public NoisyNet {
 public:
  FaultyNet(std::string name, std::int64_t element, int bit, int computation)
      : computation_(computation), element_(element), bit_(bit) {
    named_parameters()[name].register_hook([this](const at::Tensor& gradient) {
      if (++num_computed_ != computation_) return gradient;
      const at::Tensor faulty = gradient.clone();
      faulty.mutable_data_ptr<float>()[element_] = flipped(faulty.flatten()[element_].item<float>());
      return faulty;
    });
  }
  bool has_static_graph() const override { return false; }

 private:
  float flipped(float number) const {
    std::uint32_t bits;
    std::memcpy(&bits, &number, sizeof(bits));
    bits ^= 1U << static_cast<unsigned>(bit_);
    std::memcpy(&number, &bits, sizeof(bits));
    return number;
  }

  int num_computed_ = 0, computation_;
  std::int64_t element_;
  int bit_;
};

class GradientRecheck : public OnDevice {
 protected:
  TrainerOptions options(std::int64_t every_n_steps) const {
    return {.max_epochs = 2,
            .num_gpus = num_gpus_wanted(),
            .step_graph = "off",
            .recheck_every_n_steps = every_n_steps,
            .deterministic = device_.is_cpu() ? "false" : "true",
            .optimizer = sgd(1e-3)};
  }
  // Returns the parameters and buffers after a fit.
  template <class Net>
  std::vector<at::Tensor> trained(const TrainerOptions& options, DataModule& data) const {
    at::manual_seed(3);
    auto model = std::make_shared<Net>();
    Trainer(options).fit(model, data);
    std::vector<at::Tensor> all = model->parameters();
    for (const at::Tensor& buffer : model->buffers()) all.push_back(buffer);
    return all;
  }
  template <class Net>
  void expect_same(TrainerOptions options, DataModule& data) const {
    options.recheck_every_n_steps = 0;
    const auto expected = trained<Net>(options, data);
    options.recheck_every_n_steps = 3;
    const auto actual = trained<Net>(options, data);
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(same(actual[i], expected[i])) << i;
  }
};
KINDLING_RUN_ON_TRAINER_DEVICES(GradientRecheck);

TEST_P(GradientRecheck, LeavesTheRunAsItIs) {
  TensorData data = ramp(40, 0, 4);
  expect_same<NoisyNet>(options(0), data);
}

TEST_P(GradientRecheck, AcceptsCapturedSteps) {
  TensorData data = ramp(40, 0, 4);
  TrainerOptions captured = options(0);
  captured.step_graph = "on";
  expect_same<NoisyNet>(captured, data);
}

TEST_P(GradientRecheck, AcceptsWindowsOfSeveralBatches) {
  TensorData data = ramp(40, 0, 4);
  TrainerOptions several = options(0);
  several.accumulate_grad_batches = 3;
  expect_same<NoisyNet>(several, data);
}

// Nothing clears the gradients of the other parameters, so they grow from step to step.
TEST_P(GradientRecheck, AcceptsAnOptimizerOfSomeParameters) {
  TensorData data = ramp(40, 0, 4);
  TrainerOptions of_last = options(0);
  of_last.optimizer = [](std::vector<at::Tensor> parameters) {
    return std::make_unique<Sgd>(std::vector{parameters.back()}, SgdOptions{.lr = 1e-3});
  };
  expect_same<NoisyNet>(of_last, data);
}

TEST_P(GradientRecheck, RestoresHiddenStates) {
  WindowData data;
  expect_same<Predictor>(options(0), data);
}

TEST(GradientRecheckOnRanks, LeavesTheRunAsItIs) {
  std::vector<at::Tensor> weights[2];
  for (const std::int64_t every_n_steps : {0, 2}) {
    on_ranks(2, [&](ProcessGroup& group) {
      TensorData data = ramp(40, 0, 4);
      auto model = std::make_shared<Slope>();
      Trainer({.max_epochs = 2,
               .num_gpus = 0,
               .recheck_every_n_steps = every_n_steps,
               .optimizer = sgd(1e-3),
               .process_group = std::shared_ptr<ProcessGroup>(std::shared_ptr<void>(), &group)})
          .fit(model, data);
      if (group.rank() == 0) weights[every_n_steps / 2] = {model->weight};
    });
  }
  EXPECT_TRUE(same(weights[1][0], weights[0][0]));
}

// KINDLING_SOAK_FLIPS in the environment: how many.
TEST(GradientRecheckOfFaults, FindsEveryFlippedBit) {
  const char* const set = std::getenv("KINDLING_SOAK_FLIPS");
  const int num_flips = set == nullptr ? 20 : std::atoi(set);
  std::mt19937 random(7);
  for (int trial = 0; trial < num_flips; ++trial) {
    const bool in_weight = random() % 2 == 0;
    const std::string name = in_weight ? "net.0.weight" : "net.4.bias";
    const auto element = static_cast<std::int64_t>(in_weight ? random() % 6 : 0);
    const int bit = static_cast<int>(random() % 32), computation = 3 + static_cast<int>(random() % 2);
    TensorData data = ramp(40, 0, 4);
    try {
      Trainer({.max_epochs = 1, .num_gpus = 0, .recheck_every_n_steps = 3})
          .fit(std::make_shared<FaultyNet>(name, element, bit, computation), data);
      FAIL() << "bit " << bit << " of " << name << " was not found";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("step 3, computed twice: the gradient of " + name), std::string::npos) << text;
      EXPECT_NE(text.find("first at position " + std::to_string(element)), std::string::npos) << text;
      EXPECT_NE(text.find(computation == 3 ? "equals the second one" : "equals the first one"),
                std::string::npos)
          << text;
    }
  }
}

TEST(GradientRecheckOfFaults, ReportsAModelWithStateOfItsOwn) {
  struct Counting : Slope {
    at::Tensor training_step(const Batch& batch) override { return Slope::training_step(batch) * ++count; }
    int count = 0;
  };
  TensorData data = ramp(40, 0, 4);
  try {
    Trainer({.max_epochs = 1, .num_gpus = 0, .step_graph = "off", .recheck_every_n_steps = 2})
        .fit(std::make_shared<Counting>(), data);
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("the loss: 1 of 1 numbers differ"), std::string::npos) << text;
    EXPECT_NE(text.find("a third pass differs from both"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace kindling
