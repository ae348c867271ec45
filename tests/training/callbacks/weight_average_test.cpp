// Weight averaging in a run: when averages are updated, where they are applied and what is saved.
#include "kindling/training/weight_average.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <cmath>

#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "kindling/checkpoint/checkpoint_folder.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/training/exponential_moving_average.h"
#include "kindling/training/model_checkpoint.h"
#include "kindling/training/stochastic_weight_averaging.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/loop/confusion.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

double host_value(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU, at::kDouble).item<double>();
}

using EmaOptions = ExponentialMovingAverageOptions;
using SwaOptions = StochasticWeightAveragingOptions;

std::shared_ptr<ExponentialMovingAverage> ema(EmaOptions options = {.decay = 0.9}) {
  return std::make_shared<ExponentialMovingAverage>(options);
}

// The weight after each step and in each validation, and what `at_validation` does there.
struct WeightWatch : Callback {
  void on_train_batch_end(Trainer&, Module& model) override { after_steps.push_back(weight_of(model)); }
  void on_validation_start(Trainer& trainer, Module& model) override {
    in_validations.push_back(weight_of(model));
    if (at_validation) at_validation(trainer);
  }
  void on_epoch_end(Trainer&, Module& model, const Record&) override {
    after_epochs.push_back(weight_of(model));
  }
  static double weight_of(Module& model) { return host_value(model.parameters().at(0)); }

  std::vector<double> after_steps, in_validations, after_epochs;
  std::function<void(Trainer&)> at_validation;
};

// A training of four steps an epoch whose weight moves from 0 towards 2.
struct AveragedSlopeFit {
  explicit AveragedSlopeFit(std::vector<std::shared_ptr<Callback>> averages, std::int64_t epochs = 3) {
    options = {.max_epochs = epochs, .num_sanity_val_steps = 0, .optimizer = sgd(0.01), .callbacks = {watch}};
    for (auto& average : averages) options.callbacks.push_back(std::move(average));
  }
  FitResult fit() { return Trainer(options).fit(model, data); }
  double weight() const { return host_value(model->weight); }

  std::shared_ptr<WeightWatch> watch = std::make_shared<WeightWatch>();
  std::shared_ptr<Slope> model = std::make_shared<Slope>();
  TensorData data = ramp(8, 2, 2);
  TrainerOptions options;
};

// Single precision, twelve updates.
constexpr double kRounding = 1e-6;

// d^n·w_0 + (1 - d)·Σ d^(n-k)·w_k, with the decay of each update.
double closed_form(const std::vector<double>& weights, const std::function<double(std::size_t)>& decay) {
  double sum = 0;
  for (std::size_t k = 0; k < weights.size(); ++k) {
    double share = k == 0 ? 1 : 1 - decay(k);
    for (std::size_t later = k + 1; later < weights.size(); ++later) share *= decay(later);
    sum += share * weights[k];
  }
  return sum;
}

TEST(Ema, MatchesItsClosedForm) {
  const auto plain = ema({.decay = 0.9});
  AveragedSlopeFit fit({plain});
  fit.fit();
  EXPECT_EQ(plain->num_averaged(), 12);
  EXPECT_NEAR(fit.weight(), closed_form(fit.watch->after_steps, [](auto) { return 0.9; }), kRounding);
  EXPECT_GT(std::abs(fit.weight() - fit.watch->after_steps.back()), 0.01);

  AveragedSlopeFit warm({ema({.decay = 0.5, .decay_warmup = true})});
  warm.fit();
  EXPECT_NEAR(warm.weight(),
              closed_form(warm.watch->after_steps,
                          [](std::size_t k) {
                            const auto n = static_cast<double>(k);
                            return std::min(0.5, (1 + n) / (10 + n));
                          }),
              kRounding);
}

TEST(Ema, UpdatesAtTheConfiguredSteps) {
  const auto averaged = [](EmaOptions options, const std::vector<std::size_t>& steps) {
    options.decay = 0.9;
    const auto average = ema(options);
    AveragedSlopeFit fit({average});
    fit.fit();
    std::vector<double> weights;
    for (const std::size_t step : steps) weights.push_back(fit.watch->after_steps.at(step));
    EXPECT_EQ(average->num_averaged(), static_cast<std::int64_t>(steps.size()));
    EXPECT_NEAR(fit.weight(), closed_form(weights, [](auto) { return 0.9; }), kRounding);
  };
  averaged({.update_every_n_steps = 5}, {0, 5, 10});
  averaged({.update_every_n_steps = 2, .update_starting_at_step = 7}, {8, 10});
  averaged({.update_every_n_steps = 0, .update_starting_at_epoch = 1}, {7, 11});
  averaged({.update_every_n_steps = 6, .update_starting_at_epoch = 2}, {0, 6, 11});
}

TEST(Ema, IsUsedInValidationsAndNotInTraining) {
  AveragedSlopeFit plain({}), fit({ema()}), blind({ema({.decay = 0.9, .evaluate = false})});
  plain.fit();
  fit.fit();
  blind.fit();
  EXPECT_EQ(fit.watch->after_steps, plain.watch->after_steps);
  EXPECT_EQ(fit.watch->after_epochs, plain.watch->after_epochs);
  EXPECT_EQ(blind.watch->in_validations, plain.watch->in_validations);
  const auto& steps = plain.watch->after_steps;
  ASSERT_EQ(fit.watch->in_validations.size(), 3U);
  for (std::size_t epoch = 0; epoch < 3; ++epoch) {
    const std::vector<double> so_far(steps.begin(),
                                     steps.begin() + 4 * (static_cast<std::ptrdiff_t>(epoch) + 1));
    EXPECT_NEAR(fit.watch->in_validations[epoch], closed_form(so_far, [](auto) { return 0.9; }), kRounding);
  }
}

TEST(Ema, KeepsTheModelsOwnWeightsIfConfiguredAndAfterADivergence) {
  AveragedSlopeFit fit({ema({.decay = 0.9, .apply_at_end = false})});
  fit.fit();
  EXPECT_EQ(fit.weight(), fit.watch->after_steps.back());

  AveragedSlopeFit diverging({ema()});
  const at::Tensor x = at::arange(8, at::kFloat).unsqueeze(1);
  at::Tensor labels = 2 * x;
  labels[7] = std::nan("");
  diverging.data = {{x, labels}, {}, {.batch_size = 2, .shuffle = false}};
  EXPECT_EQ(diverging.fit().status, FitStatus::diverged);
  EXPECT_EQ(diverging.weight(), diverging.watch->after_steps.at(2));
}

TEST(Ema, IgnoresSkippedSteps) {
  const auto average = ema();
  AveragedSlopeFit fit({average}, 2);
  const at::Tensor x = at::arange(8, at::kFloat).unsqueeze(1);
  at::Tensor labels = 2 * x;
  labels[2] = std::nan("");
  fit.data = {{x, labels}, {}, {.batch_size = 2, .shuffle = false}};
  fit.options.on_nonfinite = "skip";
  fit.fit();
  EXPECT_EQ(average->num_averaged(), 8);
  EXPECT_NEAR(fit.weight(), closed_form(fit.watch->after_steps, [](auto) { return 0.9; }), kRounding);
}

TEST(Ema, StartsFromScratchInEachFit) {
  const auto average = ema();
  AveragedSlopeFit first({average}), second({average});
  first.fit();
  second.fit();
  EXPECT_EQ(average->num_averaged(), 12);
  EXPECT_EQ(second.weight(), first.weight());
  EXPECT_NE(first.model->weight.data_ptr(), average->averages().find("weight")->data_ptr());
}

TEST(Ema, WorksInCustomLoops) {
  AveragedSlopeFit whole({ema()}), own({});
  const auto average = ema();
  own.options.callbacks.push_back(average);
  whole.fit();
  for (int times = 0; times < 2; ++times) {  // another run with the same callback
    own.model = std::make_shared<Slope>();
    Trainer trainer(own.options);
    trainer.prepare_data(own.data);
    trainer.prepare_model(own.model);
    while (!trainer.is_done()) {
      for (const Batch& batch : trainer.train_batches()) trainer.train_step(batch);
      trainer.finish_epoch();
    }
    EXPECT_EQ(own.weight(), whole.watch->after_steps.back());
    const AveragedWeights averaged(trainer, average.get());
    const AveragedWeights again(trainer, average.get());
    EXPECT_EQ(own.weight(), whole.weight());
  }
  EXPECT_EQ(own.weight(), whole.watch->after_steps.back());
}

struct ThrowingSlope : Slope {
  void validation_step(const Batch& batch) override {
    if (throws) throw std::runtime_error("in a validation");
    Slope::validation_step(batch);
  }
  bool throws = true;
};

TEST(Ema, RestoresTheWeightsWhenAValidationThrows) {
  AveragedSlopeFit fit({ema()});
  const auto model = std::make_shared<ThrowingSlope>();
  fit.model = model;
  EXPECT_THROW(fit.fit(), std::runtime_error);
  EXPECT_EQ(fit.weight(), fit.watch->after_steps.back());

  Trainer trainer(fit.options);
  trainer.prepare_data(fit.data);
  trainer.prepare_model(model);
  for (const Batch& batch : trainer.train_batches()) trainer.train_step(batch);
  EXPECT_THROW(trainer.finish_epoch(), std::runtime_error);
  EXPECT_EQ(fit.weight(), fit.watch->after_steps.back());
}

// A save during a validation with averages, or after the fit has applied them, contains the model's own
// weights.
TEST(Ema, IsAlwaysSavedInAdditionToTheModelsOwnWeights) {
  AveragedSlopeFit fit({ema()}, 1);
  StateDict in_validation;
  fit.watch->at_validation = [&](Trainer& trainer) { in_validation = copy_to(trainer.state_dict(), cpu()); };
  Trainer trainer(fit.options);
  trainer.fit(fit.model, fit.data);
  for (const StateDict& state : {in_validation, copy_to(trainer.state_dict(), cpu())}) {
    EXPECT_EQ(host_value(*state.find("model.weight")), fit.watch->after_steps.back());
    EXPECT_EQ(state.metadata.at("averages"), "callback.1.average.");
    EXPECT_EQ(host_value(*state.find("callback.1.average.weight")), fit.weight());
  }
  EXPECT_NE(fit.weight(), fit.watch->after_steps.back());
  // A step from the averages makes them the model's own.
  trainer.train_step({at::ones({2, 1}), at::ones({2, 1})});
  EXPECT_EQ(host_value(*trainer.state_dict().find("model.weight")), fit.weight());
}

std::vector<std::string> warnings_of(const std::function<void()>& action) {
  std::vector<std::string> warnings;
  configure_log({.level = LogLevel::warning});
  set_log_observer([&](LogLevel, const std::string& line) { warnings.push_back(line); });
  action();
  set_log_observer({});
  return warnings;
}

TEST(LoadValidatedWeights, LoadsTheAveragesThatWereValidated) {
  const Scratch scratch;
  AveragedSlopeFit fit({ema({.decay = 0.9, .apply_at_end = false})});
  fit.options.callbacks.push_back(std::make_shared<ModelCheckpoint>(
      ModelCheckpointOptions{.dirpath = scratch.folder(), .monitor = "val_loss", .mode = "min"}));
  const FitResult result = Trainer(fit.options).fit(fit.model, fit.data);
  const StateDict saved = load_checkpoint(result.best_checkpoint);

  auto loaded = std::make_shared<Slope>();
  EXPECT_TRUE(warnings_of([&] { load_validated_weights(*loaded, result.best_checkpoint); }).empty());
  EXPECT_TRUE(same(loaded->weight, *saved.find("callback.1.average.weight")));
  EXPECT_FALSE(same(loaded->weight, *saved.find("model.weight")));
  Trainer trainer(TrainerOptions{});
  EXPECT_EQ(number_text(trainer.validate(loaded, fit.data).at("val_loss")),
            saved.metadata.at("monitor.value"));
  EXPECT_EQ(saved.metadata.at("monitor.mode"), "min");

  // A directory means its newest checkpoint.
  auto newest = std::make_shared<Slope>();
  load_validated_weights(*newest, scratch.folder());
  EXPECT_TRUE(same(newest->weight, *load_checkpoint(scratch.folder()).find("callback.1.average.weight")));

  // The weights that were trained are still there to be loaded, with a warning.
  auto trained = std::make_shared<Slope>();
  const auto warnings =
      warnings_of([&] { load_weights(*trained, result.best_checkpoint, {.prefix = "model."}); });
  EXPECT_TRUE(same(trained->weight, *saved.find("model.weight")));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("load_validated_weights()"), std::string::npos) << warnings[0];
}

TEST(LoadValidatedWeights, LoadsTheModelOfARunWithoutAverages) {
  const Scratch scratch;
  AveragedSlopeFit fit({});
  fit.options.callbacks.push_back(
      std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.dirpath = scratch.folder()}));
  Trainer(fit.options).fit(fit.model, fit.data);
  auto loaded = std::make_shared<Slope>();
  load_validated_weights(*loaded, scratch.folder());
  EXPECT_TRUE(same(loaded->weight, fit.model->weight));
  EXPECT_TRUE(warnings_of([&] {
                load_weights(*loaded, newest_valid_checkpoint(scratch.folder()).value().path,
                             {.prefix = "model."});
              }).empty());

  save_safetensors(state_dict(*loaded), scratch / "weights.safetensors");
  EXPECT_THROW(load_validated_weights(*loaded, scratch / "weights.safetensors"), CheckpointError);
}

TEST(Ema, LeavesEvaluationsOfCallbacksToTheCurrentWeights) {
  const auto average = ema();
  AveragedSlopeFit fit({average}, 1);
  double in_validation = 0, with_averages = 0, without = 0;
  const auto val_loss = [&](Trainer& trainer) {
    auto val_data = ramp(8, 2, 2);
    return trainer.validate(trainer.model(), val_data).at("val_loss");
  };
  fit.watch->at_validation = [&](Trainer& trainer) { in_validation = val_loss(trainer); };
  struct AtEnd : Callback {
    std::function<void(Trainer&)> run;
    void on_epoch_end(Trainer& trainer, Module&, const Record& epoch) override {
      record = epoch;
      run(trainer);
    }
    Record record;
  };
  const auto at_end = std::make_shared<AtEnd>();
  at_end->run = [&](Trainer& trainer) {
    without = val_loss(trainer);
    const AveragedWeights averaged(trainer, average.get());
    with_averages = val_loss(trainer);
  };
  fit.options.callbacks.push_back(at_end);
  fit.fit();
  EXPECT_EQ(in_validation, value_of(at_end->record, "val_loss"));
  EXPECT_EQ(with_averages, in_validation);
  EXPECT_GT(std::abs(without - in_validation), 1e-3);
}

// Layers whose weight is one tensor, an integer buffer and parameters of half the width.
struct TiedPair : Module {
  TiedPair() {
    first = register_parameter("first", at::ones({2, 2}));
    register_parameter("second", first);
    count = register_buffer("count", at::zeros({}, at::kLong));
  }
  at::Tensor forward(const at::Tensor& x) override {
    if (is_training()) count.add_(1);
    return x.matmul(first).matmul(first);
  }
  at::Tensor loss(const at::Tensor& y, const at::Tensor&) override { return y.square().mean(); }
  at::Tensor first, count;
};

TEST(Ema, CountsTiedWeightsOnceAndLeavesIntegersAlone) {
  const auto average = ema();
  const auto model = std::make_shared<TiedPair>();
  const at::TensorImpl* const before = model->first.unsafeGetTensorImpl();
  TensorData data({at::ones({4, 2}), at::ones({4})}, {}, {.batch_size = 2, .shuffle = false});
  Trainer({.max_epochs = 2, .optimizer = sgd(0.1), .callbacks = {average}}).fit(model, data);
  EXPECT_EQ(model->named_parameters()["first"].unsafeGetTensorImpl(), before);
  EXPECT_EQ(model->count.item<std::int64_t>(), 4);
  const StateDict averages = average->averages();
  ASSERT_EQ(averages.tensors.size(), 2U);
  EXPECT_TRUE(averages.find("first")->is_same(*averages.find("second")));
}

TEST(Ema, KeepsNarrowWeightsInSinglePrecision) {
  const auto average = ema({.decay = 0.999});
  const auto model = std::make_shared<TiedPair>();
  model->to(at::kBFloat16);
  TensorData data({at::ones({80, 2}, at::kBFloat16), at::ones({80})}, {},
                  {.batch_size = 2, .shuffle = false});
  struct Watch : Callback {
    void on_train_batch_end(Trainer&, Module& model) override {
      weights.push_back(host_value(model.parameters()[0].flatten()[0]));
    }
    std::vector<double> weights;
  };
  const auto watch = std::make_shared<Watch>();
  Trainer({.max_epochs = 1, .optimizer = sgd(0.01), .callbacks = {watch, average}}).fit(model, data);
  const at::Tensor kept = *average->averages().find("first");
  EXPECT_EQ(kept.scalar_type(), at::kFloat);
  EXPECT_EQ(model->first.scalar_type(), at::kBFloat16);
  EXPECT_NEAR(host_value(kept.flatten()[0]), closed_form(watch->weights, [](auto) { return 0.999; }), 1e-5);
}

TEST(Ema, RefusesInvalidOptions) {
  const std::string range = error_text<ConfigError>([] { ema({.decay = 1.5}); });
  EXPECT_NE(range.find("decay"), std::string::npos) << range;
  const std::string never = error_text<ConfigError>([] { ema({.update_every_n_steps = 0}); });
  EXPECT_NE(never.find("update_starting_at_epoch is not set"), std::string::npos) << never;
  const std::string two = error_text<ConfigError>([] {
    AveragedSlopeFit({ema(), std::make_shared<StochasticWeightAveraging>(SwaOptions{.swa_lrs = {0.1}})})
        .fit();
  });
  EXPECT_NE(two.find("evaluate is also set for StochasticWeightAveraging"), std::string::npos) << two;
  EXPECT_NE(two.find("evaluate = false"), std::string::npos) << two;
}

TEST(Swa, RefusesInvalidOptions) {
  const auto text = [](SwaOptions options, std::optional<std::int64_t> max_epochs = 3) {
    return error_text<ConfigError>([&] {
      AveragedSlopeFit fit({std::make_shared<StochasticWeightAveraging>(options)});
      fit.options.max_epochs = max_epochs;
      fit.options.max_steps = 9;
      fit.fit();
    });
  };
  EXPECT_NE(text({}).find("swa_lrs is not set"), std::string::npos) << text({});
  EXPECT_NE(text({.swa_lrs = {-1.}}).find("swa_lrs"), std::string::npos);
  EXPECT_NE(text({.swa_lrs = {0.1, 0.2}}).find("there are 2 swa_lrs and 1 "), std::string::npos);
  EXPECT_NE(text({.swa_lrs = {0.1}, .swa_epoch_start = 1.5}).find("swa_epoch_start is 1.5"),
            std::string::npos);
  EXPECT_NE(text({.swa_lrs = {0.1}, .swa_epoch_start = 4}).find("after max_epochs = 3"), std::string::npos);
  EXPECT_NE(text({.swa_lrs = {0.1}}, std::nullopt).find("max_epochs is not set"), std::string::npos);
  EXPECT_NE(text({.swa_lrs = {0.1}, .annealing_strategy = "cosine"}).find("annealing_strategy"),
            std::string::npos);
}

TEST(Swa, IsTheMeanOverTheEndsOfItsEpochs) {
  const auto mean_of = [](double start, std::int64_t first) {
    AveragedSlopeFit fit({std::make_shared<StochasticWeightAveraging>(SwaOptions{
                             .swa_lrs = {0.005}, .swa_epoch_start = start, .annealing_epochs = 2})},
                         10);
    fit.fit();
    double sum = 0;
    for (std::int64_t epoch = first; epoch < 10; ++epoch)
      sum += fit.watch->after_epochs.at(static_cast<std::size_t>(epoch)) / static_cast<double>(10 - first);
    EXPECT_NEAR(fit.weight(), sum, kRounding) << start;
    // Before there is an average validations see the model as it is.
    if (first > 0) {
      EXPECT_EQ(fit.watch->in_validations.at(0), fit.watch->after_epochs.at(0));
    }
    EXPECT_NEAR(fit.watch->in_validations.at(9), sum, kRounding);
  };
  mean_of(0.8, 7);
  mean_of(0, 0);
  mean_of(0.05, 0);
  mean_of(1, 0);
  mean_of(10, 9);
}

// Batch norm and dropout: the averages are evaluated with recomputed statistics, without effect on training
// and its random numbers.
struct NormedSlope : Module {
  at::Tensor forward(const at::Tensor& x) override { return last->forward(drop->forward(norm->forward(x))); }
  at::Tensor loss(const at::Tensor& y, const at::Tensor& labels) override { return at::mse_loss(y, labels); }
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(1));
  torch::nn::Dropout drop = register_module("drop", torch::nn::Dropout(0.5));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(1, 1));
};

TEST(Swa, RecomputesStatisticsWithoutAffectingTraining) {
  std::vector<StateDict> ends;
  at::Tensor mean;
  for (const bool averages : {false, true}) {
    at::manual_seed(1);
    const auto model = std::make_shared<NormedSlope>();
    auto data = ramp(8, 2, 2);
    TrainerOptions options{.max_epochs = 4, .optimizer = sgd(0.01)};
    if (averages)
      options.callbacks = {
          std::make_shared<StochasticWeightAveraging>(SwaOptions{.swa_lrs = {0.01}, .swa_epoch_start = 2})};
    Trainer trainer(options);
    trainer.fit(model, data);
    ends.push_back(copy_to(trainer.state_dict(), cpu()));
    mean = model->norm->running_mean;
  }
  for (const auto& [name, tensor] : ends[0].tensors) {
    EXPECT_TRUE(same(*ends[1].find(name), tensor)) << name;
  }
  EXPECT_NEAR(mean.item<double>(), 3.5, 1e-6);  // of 0, 1, …, 7, where momentum alone would still be near 2.9
}

TEST(Swa, LeavesFrozenStatisticsUnchanged) {
  const auto model = std::make_shared<NormedSlope>();
  model->norm->running_mean.fill_(3);
  model->norm->running_var.fill_(4);
  model->freeze(*model->norm);
  auto data = ramp(8, 2, 2);
  Trainer({.max_epochs = 2,
           .optimizer = sgd(0.01),
           .callbacks = {std::make_shared<StochasticWeightAveraging>(
               SwaOptions{.swa_lrs = {0.01}, .swa_epoch_start = 1})}})
      .fit(model, data);
  EXPECT_EQ(model->norm->running_mean.item<double>(), 3);
  EXPECT_EQ(model->norm->running_var.item<double>(), 4);
}

}  // namespace
}  // namespace kindling
