// Runs for tests of stopping and resuming, with everything that draws random numbers, counts or keeps state.
#pragma once

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kindling/nn/classifier.h"
#include "kindling/nn/lazy_linear.h"
#include "kindling/optim/adam.h"
#include "kindling/optim/cosine_schedules.h"
#include "kindling/optim/decay_schedules.h"
#include "kindling/training/early_stopping.h"
#include "kindling/training/exponential_moving_average.h"
#include "kindling/training/stochastic_weight_averaging.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"

namespace kindling {

// Lazy layers, batch norm and dropout. Stops in a validation at the given batch.
class Busy : public Classifier {
 public:
  Busy() {
    net->push_back(torch::nn::Flatten());
    net->push_back(LazyLinear(8));
    net->push_back(torch::nn::BatchNorm1d(8));
    net->push_back(torch::nn::ReLU());
    net->push_back(torch::nn::Dropout(0.5));
    net->push_back(LazyLinear(10));
    register_module("net", net);
  }
  at::Tensor forward(const at::Tensor& x) override { return net->forward(x); }
  void validation_step(const Batch& batch) override {
    if (++num_val_batches == stop_at_val_batch) stop.request_stop();
    Classifier::validation_step(batch);
  }
  torch::nn::Sequential net;
  StopToken stop;
  std::int64_t num_val_batches = 0, stop_at_val_batch = -1;
};

// Its validation draws, too.
class Drawing : public Busy {
 public:
  void validation_step(const Batch& batch) override {
    log("val_drawn", at::rand({1}));
    Busy::validation_step(batch);
  }
};

// Adds noise to the pictures on their device.
class NoisyImages : public NoiseImages {
 public:
  using NoiseImages::NoiseImages;
  Batch on_after_batch_transfer(Batch batch) override {
    batch = NoiseImages::on_after_batch_transfer(std::move(batch));
    batch.tensors()[0] = batch.tensors()[0] + 0.01 * at::rand_like(batch.tensors()[0]);
    return batch;
  }
};

// Draws when an epoch begins, counts epochs and steps as its state, lowers the rate once, freezes a layer
// with its running statistics once, and stops at the given step.
class Meddler : public Callback {
 public:
  void on_fit_start(Trainer&, Module&) override { num_steps = num_epochs = 0; }
  void on_train_epoch_start(Trainer& trainer, Module& model) override {
    at::rand({3});
    if (trainer.progress().epoch == 2 && trainer.progress().batch == 0)
      model.freeze(*dynamic_cast<Drawing&>(model).net->children()[2]);
  }
  void on_before_optimizer_step(Trainer& trainer, Module&, Optimizer& optimizer) override {
    if (lowers_rate && trainer.progress().global_step == 9) optimizer.set_lr(0.25 * optimizer.lr());
  }
  void on_train_batch_end(Trainer& trainer, Module&) override {
    ++num_steps;
    if (trainer.progress().global_step == stop_at) trainer.request_stop();
  }
  void on_epoch_end(Trainer&, Module&, const Record&) override { ++num_epochs; }
  void on_resume(Trainer&, Module&) override {
    at::rand({5});
    ++num_resumes;
  }
  void save_state(StateDict& state) const override {
    state.metadata["steps"] = std::to_string(num_steps);
    state.metadata["epochs"] = std::to_string(num_epochs);
  }
  void load_state(const StateDict& state) override {
    num_steps = std::stoll(state.metadata.at("steps"));
    num_epochs = std::stoll(state.metadata.at("epochs"));
  }

  bool lowers_rate = false;
  std::int64_t num_steps = 0, num_epochs = 0, num_resumes = 0, stop_at = -1;
};

inline constexpr std::int64_t kResumeEpochs = 4, kResumeBatches = 15;

inline OptimizerFactory rule_named(const std::string& rule) {
  return [rule](ParameterGroups parameters) -> std::unique_ptr<Optimizer> {
    if (rule == "sgd")
      return std::make_unique<Sgd>(parameters, SgdOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true});
    if (rule == "adam") return std::make_unique<Adam>(parameters, AdamOptions{.lr = 0.01});
    return std::make_unique<AdamW>(parameters, AdamWOptions{.lr = 0.01, .amsgrad = true});
  };
}

inline Schedule schedule_named(const std::string& name) {
  if (name == "no") return {};
  if (name == "one_cycle") return one_cycle_schedule({.max_lr = 0.05});
  // A falling loss does not count as an improvement: every epoch but the first halves the rate, the last in
  // its cooldown.
  if (name == "plateau")
    return plateau_schedule(
        {.monitor = "train_loss", .mode = "max", .factor = 0.5, .patience = 0, .cooldown = 1});
  return cosine_schedule();
}

// One session of a run of 60 steps, 15 per epoch.
struct ResumedFit {
  ResumedFit(const std::string& rule, std::int64_t num_gpus, const std::string& schedule = "cosine") {
    options = {.max_epochs = kResumeEpochs,
               .num_gpus = num_gpus,
               .gradient_clip_val = 1,
               .log_every_n_steps = 1,
               .optimizer = rule_named(rule),
               .callbacks = {meddler},
               .loggers = {logger}};
    options.schedule = schedule_named(schedule);
    meddler->lowers_rate = schedule == "no";
  }

  // Both averages of the weights; validations see "ema" or "swa".
  void average(const std::string& evaluated) {
    const bool evaluates_ema = evaluated == "ema";
    options.callbacks.push_back(std::make_shared<ExponentialMovingAverage>(
        ExponentialMovingAverageOptions{.decay = 0.9,
                                        .update_every_n_steps = 2,
                                        .update_starting_at_step = 4,
                                        .decay_warmup = true,
                                        .evaluate = evaluates_ema,
                                        .apply_at_end = evaluates_ema}));
    options.callbacks.push_back(std::make_shared<StochasticWeightAveraging>(
        StochasticWeightAveragingOptions{.swa_lrs = {0.02},
                                         .swa_epoch_start = 2,
                                         .annealing_epochs = 2,
                                         .evaluate = !evaluates_ema,
                                         .apply_at_end = !evaluates_ema}));
    options.callbacks.push_back(std::make_shared<EarlyStopping>(EarlyStoppingOptions{.patience = 10}));
  }

  FitResult fit(const std::filesystem::path& resume = {}) {
    Trainer trainer(options);
    model->stop = trainer.stop_token();
    const FitResult result = trainer.fit(model, data, {.resume = resume});
    end = copy_to(trainer.state_dict(), cpu());
    return result;
  }

  const std::shared_ptr<Meddler> meddler = std::make_shared<Meddler>();
  const std::shared_ptr<MemoryLogger> logger = std::make_shared<MemoryLogger>();
  std::shared_ptr<Drawing> model = [] {
    at::manual_seed(7);
    return std::make_shared<Drawing>();
  }();
  NoisyImages data{58, 4, 4};
  TrainerOptions options;
  StateDict end;  // the run's state at the end of the fit
};

// Compares the complete results of two runs bitwise, random state included.
inline void expect_same_state(const StateDict& actual, const StateDict& expected, const std::string& where) {
  ASSERT_EQ(actual.tensors.size(), expected.tensors.size()) << where;
  for (std::size_t i = 0; i < actual.tensors.size(); ++i) {
    EXPECT_EQ(actual.tensors[i].first, expected.tensors[i].first) << where;
    EXPECT_TRUE(same(actual.tensors[i].second, expected.tensors[i].second))
        << where << ", " << actual.tensors[i].first;
  }
  for (auto [name, value] : expected.metadata)
    if (name != "run_id") {
      EXPECT_EQ(actual.metadata.contains(name) ? actual.metadata.at(name) : "(none)", value)
          << where << ", " << name;
    }
}

inline void expect_same_records(const std::vector<Record>& actual, const std::vector<Record>& expected,
                                const std::string& where) {
  ASSERT_EQ(actual.size(), expected.size()) << where;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].kind, expected[i].kind) << where;
    EXPECT_EQ(actual[i].global_step, expected[i].global_step) << where;
    EXPECT_EQ(numbers_of(actual[i]), numbers_of(expected[i])) << where << ", record " << i;
  }
}

}  // namespace kindling
