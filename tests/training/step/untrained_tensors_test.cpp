// Gradients that no optimizer uses.
#include <gtest/gtest.h>

#include <functional>

#include "kindling/base/log.h"
#include "kindling/nn/manual_module.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

// y = scale · layer(x), of which the layer may not be registered.
class Scaled : public Slope {
 public:
  explicit Scaled(bool registers, bool is_static = false) : is_static_(is_static) {
    if (registers) register_module("layer", layer);
  }
  at::Tensor forward(const at::Tensor& x) override { return Slope::forward(layer->forward(x)); }
  bool has_static_graph() const override { return is_static_; }

  torch::nn::Linear layer{1, 1};

 private:
  bool is_static_;
};

struct WatchedFit {
  std::vector<std::string> warnings{};
  std::int64_t first_step = -1;  // finished before the first of them
};

WatchedFit watched(const std::shared_ptr<Module>& model, TrainerOptions options,
                   std::int64_t num_samples = 6) {
  WatchedFit fit;
  TensorData data = ramp(num_samples, 0, 1);
  options.num_gpus = 0;
  Trainer trainer(options);
  set_log_observer([&](LogLevel level, const std::string& text) {
    if (level < LogLevel::warning || text.find("no optimizer uses") == std::string::npos) return;
    if (fit.warnings.empty()) fit.first_step = trainer.progress().global_step;
    fit.warnings.push_back(text);
  });
  trainer.fit(model, data);
  set_log_observer({});
  return fit;
}

TEST(UntrainedTensors, AreReportedOnceAtTheEndOfTheEpoch) {
  const WatchedFit fit = watched(std::make_shared<Scaled>(false), {.max_epochs = 5});
  ASSERT_EQ(fit.warnings.size(), 1U);
  EXPECT_EQ(fit.first_step, 6);
  EXPECT_EQ(fit.warnings[0].find(
                "kindling::(anonymous namespace)::Scaled::training_step computes gradients that no "
                "optimizer uses, of tensors that are not registered in the model: Float [1"),
            0U)
      << fit.warnings[0];
}

TEST(UntrainedTensors, AreReportedAfterSixteenStepsOfALongEpoch) {
  EXPECT_EQ(watched(std::make_shared<Scaled>(false), {.max_epochs = 1}, 40).first_step, 16);
}

TEST(UntrainedTensors, AreReportedOfCapturedSteps) {
  const auto model = std::make_shared<Scaled>(false, /*is_static=*/true);
  EXPECT_EQ(watched(model, {.max_epochs = 3, .step_graph = "on"}).warnings.size(), 1U);
}

TEST(UntrainedTensors, AreNamedWhereTheModelHasThem) {
  const auto model = std::make_shared<Scaled>(true);
  TrainerOptions options{.max_epochs = 1};
  options.optimizer = [&](const ParameterGroups&) {
    return std::make_unique<Sgd>(ParameterGroups{model->weight}, SgdOptions{.lr = 0.1});
  };
  const WatchedFit fit = watched(model, options);
  ASSERT_EQ(fit.warnings.size(), 1U);
  EXPECT_NE(fit.warnings[0].find("of 'layer.weight', 'layer.bias'. They are not trained"), std::string::npos)
      << fit.warnings[0];
}

TEST(UntrainedTensors, AreSilentWhereAllIsTrainedOrFrozen) {
  EXPECT_EQ(watched(std::make_shared<Scaled>(true), {.max_epochs = 2}).warnings.size(), 0U);
  const auto model = std::make_shared<Scaled>(true);
  TrainerOptions options{.max_epochs = 2};
  options.optimizer = [&](const ParameterGroups&) {
    return std::make_unique<Sgd>(ParameterGroups{model->weight}, SgdOptions{.lr = 0.1});
  };
  model->freeze(*model->layer);
  EXPECT_EQ(watched(model, options).warnings.size(), 0U);
}

class OnStep : public Callback {
 public:
  explicit OnStep(std::function<void(Trainer&)> call) : call_(std::move(call)) {}
  void on_train_batch_end(Trainer& trainer, Module&) override { call_(trainer); }

 private:
  std::function<void(Trainer&)> call_;
};

TEST(UntrainedTensors, AreReportedOfALayerThatIsRegisteredLater) {
  const auto model = std::make_shared<Scaled>(false);
  model->layer->weight.requires_grad_(false);
  model->layer->bias.requires_grad_(false);
  TrainerOptions options{.max_epochs = 3};
  options.callbacks = {std::make_shared<OnStep>([&](Trainer& trainer) {
    if (trainer.progress().global_step != 2) return;
    for (at::Tensor& parameter : model->layer->parameters()) parameter.requires_grad_(true);
    model->register_module("layer", model->layer);
  })};
  const WatchedFit fit = watched(model, options);
  ASSERT_EQ(fit.warnings.size(), 1U);
  EXPECT_NE(fit.warnings[0].find("'layer.weight', 'layer.bias'"), std::string::npos) << fit.warnings[0];
}

// The program trains the layer itself, every fourth step.
TEST(UntrainedTensors, AreSilentAboutWhatTheProgramUpdates) {
  const auto model = std::make_shared<Scaled>(false);
  TrainerOptions options{.max_epochs = 2};
  options.callbacks = {std::make_shared<OnStep>([&](Trainer& trainer) {
    const at::NoGradGuard no_grad;
    if (trainer.progress().global_step % 4 != 0) return;
    for (at::Tensor& parameter : model->layer->parameters()) {
      parameter.sub_(0.01 * parameter.grad());
      parameter.grad().zero_();
    }
  })};
  EXPECT_EQ(watched(model, options).warnings.size(), 0U);
  EXPECT_EQ(watched(model, options, 40).warnings.size(), 0U);
}

// As adversarial training does it.
class InputGradients : public Slope {
 public:
  at::Tensor training_step(const Batch& batch) override {
    last_input = batch[0].clone().requires_grad_();
    return loss(forward(last_input), batch[1]);
  }
  at::Tensor last_input;
};

TEST(UntrainedTensors, AreSilentAboutInputs) {
  EXPECT_EQ(watched(std::make_shared<InputGradients>(), {.max_epochs = 3}).warnings.size(), 0U);
}

class ManualWithAnother : public ManualModule {
 public:
  ManualWithAnother() : weight(register_parameter("weight", at::zeros({1}))) {}
  NamedOptimizers configure_named_optimizers() override {
    NamedOptimizers optimizers;
    optimizers["own"] = std::make_unique<Sgd>(ParameterGroups{weight}, SgdOptions{.lr = 0.1});
    return optimizers;
  }
  at::Tensor training_step(const Batch& batch) override {
    const at::Tensor loss = (batch[0] * weight * other - batch[1]).abs().mean();
    update("own", loss);
    return loss;
  }
  at::Tensor weight, other = at::ones({1}).requires_grad_();
};

// An update() computes the gradients of its optimizer alone.
TEST(UntrainedTensors, HaveNoGradientInAManualModule) {
  const auto model = std::make_shared<ManualWithAnother>();
  EXPECT_EQ(watched(model, {.max_epochs = 2}).warnings.size(), 0U);
  EXPECT_FALSE(model->other.grad().defined());
}

}  // namespace
}  // namespace kindling
