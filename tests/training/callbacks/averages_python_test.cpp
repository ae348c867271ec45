// Weight averages match torch.optim.swa_utils; fixtures/make_averages.py has computed the numbers.
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include "kindling/nn/classifier.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/exponential_moving_average.h"
#include "kindling/training/stochastic_weight_averaging.h"
#include "kindling/training/update_bn.h"
#include "support/device_under_test.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

const StateDict& python_averages() {
  static const StateDict numbers =
      load_state_file(std::filesystem::path(KINDLING_FIXTURES) / "../../training/fixtures/averages.pt");
  return numbers;
}

at::Tensor python(const std::string& name) { return *python_averages().find(name); }

struct PythonNet : Classifier {
  PythonNet() {
    net->push_back(torch::nn::Linear(4, 8));
    net->push_back(torch::nn::BatchNorm1d(8));
    net->push_back(torch::nn::ReLU());
    net->push_back(torch::nn::Linear(8, 3));
    register_module("net", net);
    load_state_dict(*net, python_averages(), "fixture", {.strict = false, .prefix = "initial."});
  }
  at::Tensor forward(const at::Tensor& x) override { return net->forward(x); }
  torch::nn::Sequential net;
};

class AveragesOfPython : public OnDevice {
 protected:
  TensorData data() const {
    return {{python("inputs"), python("labels")}, {}, {.batch_size = 8, .shuffle = false}};
  }
  std::shared_ptr<PythonNet> fit(std::vector<std::shared_ptr<Callback>> averages) const {
    auto model = std::make_shared<PythonNet>();
    TensorData samples = data();
    Trainer({.max_epochs = 6,
             .num_gpus = num_gpus_wanted(),
             .optimizer =
                 [](ParameterGroups parameters) {
                   return std::make_unique<Sgd>(std::move(parameters),
                                                SgdOptions{.lr = 0.1, .momentum = 0.9});
                 },
             .callbacks = std::move(averages)})
        .fit(model, samples);
    return model;
  }
  // A fused optimizer of the same LibTorch does the same with single precision; other devices and versions
  // add up in another order, 30 steps long.
  static void expect_close(const torch::nn::Module& model, const std::string& prefix,
                           double tolerance = 1e-5) {
    for (const auto& [name, values] : copy_to(state_dict(model), cpu()).tensors)
      EXPECT_TRUE(at::allclose(values, python(prefix + name), tolerance, tolerance)) << prefix << name;
  }
};
KINDLING_RUN_ON_TRAINER_DEVICES(AveragesOfPython);

TEST_P(AveragesOfPython, SwaIsTheMeanWithRecomputedStatistics) {
  const StochasticWeightAveragingOptions options{
      .swa_lrs = {0.02}, .swa_epoch_start = 3, .annealing_epochs = 3};
  const auto applied = fit({std::make_shared<StochasticWeightAveraging>(options)});
  expect_close(*applied->net, "swa.");
  StochasticWeightAveragingOptions left = options;
  left.apply_at_end = false;
  const auto average = std::make_shared<StochasticWeightAveraging>(left);
  expect_close(*fit({average})->net, "own.");
  EXPECT_EQ(average->num_averaged(), 4);
}

TEST_P(AveragesOfPython, EmaIsTheAverageOfEveryStep) {
  // Python's has the rates of the other average.
  const auto swa =
      std::make_shared<StochasticWeightAveraging>(StochasticWeightAveragingOptions{.swa_lrs = {0.02},
                                                                                   .swa_epoch_start = 3,
                                                                                   .annealing_epochs = 3,
                                                                                   .evaluate = false,
                                                                                   .apply_at_end = false});
  const auto ema = std::make_shared<ExponentialMovingAverage>(ExponentialMovingAverageOptions{.decay = 0.9});
  const auto model = fit({swa, ema});
  for (const auto& [name, values] : copy_to(state_dict(*model->net), cpu()).tensors) {
    const at::Tensor expected =
        name.ends_with("num_batches_tracked") ? python("own." + name) : python("ema." + name);
    EXPECT_TRUE(at::allclose(values, expected, 1e-5, 1e-5)) << name;
  }
}

struct TwiceNormed : Module {
  at::Tensor forward(const at::Tensor& x) override { return bn->forward(x) + bn->forward(2 * x + 1); }
  torch::nn::BatchNorm1d bn = register_module("bn", torch::nn::BatchNorm1d(4));
};

TEST_P(AveragesOfPython, LayersUsedTwiceAverageOverTheirUses) {
  const auto model = std::make_shared<TwiceNormed>();
  TensorData samples = data();
  Trainer trainer({.max_epochs = 1, .num_gpus = num_gpus_wanted()});
  trainer.prepare_model(model);
  model->eval();
  update_bn(trainer, *model, samples);
  expect_close(*model, "twice.");
  EXPECT_FALSE(model->is_training());
  EXPECT_EQ(model->bn->options.momentum(), 0.1);
}

// The rate of each epoch; before the averaging it is 0.1, or what a schedule says.
struct RateKeeper : Callback {
  void on_train_batch_end(Trainer& trainer, Module&) override {
    if (trainer.progress().batch == 1) rates.push_back(trainer.lr());
  }
  std::vector<double> rates;
};

TEST(AveragesOfPython, RatesMatchSwalr) {
  for (const std::string strategy : {"cos", "linear"})
    for (const std::int64_t annealing : {0, 1, 4})
      for (const bool has_schedule : {false, true}) {
        const auto keeper = std::make_shared<RateKeeper>();
        TensorData samples = ramp(4, 0, 2);
        TrainerOptions options{
            .max_epochs = 10,
            .optimizer = sgd(0.1),
            .callbacks = {std::make_shared<StochasticWeightAveraging>(
                              StochasticWeightAveragingOptions{.swa_lrs = {0.02},
                                                               .swa_epoch_start = 3,
                                                               .annealing_epochs = annealing,
                                                               .annealing_strategy = strategy}),
                          keeper}};
        // Half of it at first, and other rates than SWA's where SWA has begun.
        if (has_schedule)
          options.schedule = [](const SchedulePoint& at) {
            return at.step < 4 ? 0.05 : at.step < 6 ? 0.1 : 7.;
          };
        Trainer(options).fit(std::make_shared<Slope>(), samples);
        const at::Tensor expected = python("rates." + strategy + "." + std::to_string(annealing));
        ASSERT_EQ(keeper->rates.size(), 10U);
        EXPECT_EQ(keeper->rates[0], has_schedule ? 0.05 : 0.1);
        for (std::size_t k = 0; k < 8; ++k)  // 1e-15: SWALR computes each rate from the one before
          EXPECT_NEAR(keeper->rates[2 + k], expected[static_cast<std::int64_t>(k)].item<double>(), 1e-15)
              << strategy << " " << annealing << ", epoch " << k;
      }
}

}  // namespace
}  // namespace kindling
