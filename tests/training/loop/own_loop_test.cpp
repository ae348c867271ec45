// Custom training loops get what fit() gets.
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <limits>

#include "device/random_state.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/models/mlp.h"
#include "kindling/models/small_cnn.h"
#include "kindling/optim/cosine_schedules.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

class OwnLoop : public OnDevice {
 protected:
  TrainerOptions options() const {
    return {.max_epochs = 3,
            .num_gpus = num_gpus_wanted(),
            .gradient_clip_val = 1,
            .num_sanity_val_steps = 0,
            .log_every_n_steps = 1,
            .schedule = cosine_schedule()};
  }
  static void run(Trainer& trainer, std::shared_ptr<Module> model, DataModule& data) {
    trainer.prepare_data(data);
    trainer.prepare_model(std::move(model));
    while (!trainer.is_done()) {
      for (const Batch& batch : trainer.train_batches()) trainer.train_step(batch);
      trainer.finish_epoch();
    }
  }
};
KINDLING_RUN_ON_TRAINER_DEVICES(OwnLoop);

TEST_P(OwnLoop, MatchesTheWeightsAndRecordsOfAFit) {
  for (const bool by_steps : {false, true}) {
    std::vector<at::Tensor> weights[2];
    std::vector<Record> records[2];
    for (const bool own : {false, true}) {
      at::manual_seed(5);
      const auto model = std::make_shared<SmallCnn>(SmallCnnOptions{.channels = {4}, .hidden = 8});
      const auto logger = std::make_shared<MemoryLogger>();
      NoiseImages data(22, 8, 4);  // shuffled
      TrainerOptions made = options();
      made.loggers = {logger};
      if (by_steps) {
        made.max_epochs.reset();
        made.max_steps = 8;
      }
      Trainer trainer(made);
      if (own)
        run(trainer, model, data);
      else
        trainer.fit(model, data);
      for (const at::Tensor& weight : model->parameters()) weights[own].push_back(weight.detach().cpu());
      for (const at::Tensor& buffer : model->buffers()) weights[own].push_back(buffer.detach().cpu());
      records[own] = logger->records();
    }
    ASSERT_EQ(records[0].size(), by_steps ? 8 + 2 : 18 + 3);
    ASSERT_EQ(records[1].size(), records[0].size());
    for (std::size_t i = 0; i < records[0].size(); ++i) {
      EXPECT_EQ(records[1][i].kind, records[0][i].kind);
      EXPECT_EQ(records[1][i].epoch, records[0][i].epoch);
      EXPECT_EQ(records[1][i].global_step, records[0][i].global_step);
      EXPECT_EQ(names_of(records[1][i]), names_of(records[0][i]));
      EXPECT_EQ(numbers_of(records[1][i]), numbers_of(records[0][i])) << i;
    }
    for (std::size_t i = 0; i < weights[0].size(); ++i) EXPECT_TRUE(same(weights[0][i], weights[1][i])) << i;
  }
}

TEST_P(OwnLoop, EarlyExitEndsTheEpochWithItsStepsSoFar) {
  const auto model = std::make_shared<Slope>();
  TensorData data = ramp(9, 2, 2);
  TrainerOptions made = options();
  made.schedule = {};
  Trainer trainer(made);
  trainer.prepare_data(data);
  trainer.prepare_model(model);
  std::vector<std::int64_t> firsts;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const Batch& batch : trainer.train_batches()) {
      if (trainer.progress().batch == 0)
        firsts.push_back(static_cast<std::int64_t>(batch[0][0].item<float>()));
      trainer.train_step(batch);
      if (trainer.progress().batch == 2) break;
    }
    const Metrics values = trainer.finish_epoch();
    EXPECT_TRUE(values.contains("val_loss"));
    EXPECT_EQ(trainer.progress().batch, 0);
  }
  EXPECT_EQ(trainer.progress().global_step, 4);
  EXPECT_EQ(firsts, (std::vector<std::int64_t>{0, 0}));
}

TEST_P(OwnLoop, StepsRestoreTrainingMode) {
  const auto model = std::make_shared<Slope>();  // expects it in every training step
  Trainer trainer(options());
  TensorData data = ramp(4, 0, 2);
  trainer.prepare_data(data);
  trainer.prepare_model(model);
  for (const Batch& batch : trainer.train_batches()) {
    model->eval();  // for acting
    trainer.train_step(batch);
    EXPECT_TRUE(model->is_training());
  }
}

TEST_P(OwnLoop, KeepsValuesLoggedAfterTheLastStep) {
  Trainer trainer({.max_epochs = 2, .num_gpus = num_gpus_wanted()});
  trainer.prepare_model(std::make_shared<Slope>());
  const at::Tensor x = at::ones({2, 1});
  for (int i = 0; i < 3; ++i) trainer.train_step(trainer.prepare_batch(Batch{x, x * 2}));
  trainer.log("return", 7.0);
  trainer.log("return_on_device", at::full({}, 8.).to(trainer.device()), {.weight = 1});
  const Metrics values = trainer.finish_epoch();
  EXPECT_EQ(values.at("return"), 7);
  EXPECT_EQ(values.at("return_on_device"), 8);
  EXPECT_TRUE(values.contains("train_loss"));
  trainer.train_step(trainer.prepare_batch(Batch{x, x * 2}));
  EXPECT_FALSE(trainer.finish_epoch().contains("return"));
}

TEST_P(OwnLoop, ValuesOfEpisodesHaveSeparateWeights) {
  Trainer trainer({.max_epochs = 1, .num_gpus = num_gpus_wanted()});
  trainer.prepare_model(std::make_shared<Slope>());
  for (const std::int64_t length : {2, 6}) {
    trainer.log("return", length == 2 ? 30. : 60., {.weight = 1});
    const at::Tensor x = at::ones({length, 1});
    trainer.train_step(trainer.prepare_batch(Batch{x, x * 2}));
  }
  EXPECT_DOUBLE_EQ(trainer.finish_epoch().at("return"), 45);
}

// Adds one to each input on its way.
class PlusOne : public TensorData {
 public:
  using TensorData::TensorData;
  Batch on_after_batch_transfer(Batch batch) override { return Batch{batch[0] + 1, batch[1]}; }
};

TEST_P(OwnLoop, PrepareBatchAppliesTheHookOfPreparedData) {
  const at::Tensor x = at::zeros({2, 1});
  PlusOne data({x, x}, {}, {.batch_size = 2});
  Trainer trainer(options());
  EXPECT_TRUE(same(trainer.prepare_batch(Batch{x, x})[0].cpu(), x)) << "no data is known yet";
  trainer.prepare_data(data);
  EXPECT_TRUE(same(trainer.prepare_batch(Batch{x, x})[0].cpu(), x + 1));
}

// Adds one to what is trained on, and notes the stages it was called for.
class AugmentedData : public TensorData {
 public:
  using TensorData::TensorData;
  std::shared_ptr<DataLoader> test_dataloader() override { return val_dataloader(); }
  using TensorData::on_after_batch_transfer;
  Batch on_after_batch_transfer(Batch batch, Stage stage) override {
    if (stages.empty() || stages.back() != stage) stages.push_back(stage);
    return stage == Stage::train ? Batch{batch[0] + 1, batch[1]} : batch;
  }
  std::vector<Stage> stages;
};

TEST_P(OwnLoop, OnAfterBatchTransferKnowsTheStage) {
  const at::Tensor x = at::zeros({2, 1});
  AugmentedData data({x, x}, {x, x}, {.batch_size = 2});
  const auto model = std::make_shared<Slope>();
  TrainerOptions with_sanity_check = options();
  with_sanity_check.max_epochs = 1;
  with_sanity_check.num_sanity_val_steps = 1;
  Trainer trainer(with_sanity_check);
  trainer.fit(model, data);
  EXPECT_EQ(data.stages,
            (std::vector{Stage::val, Stage::train, Stage::val}));  // the first is the sanity check
  data.stages.clear();
  trainer.validate(model, data);
  trainer.test(model, data);
  trainer.predict(model, data);
  EXPECT_EQ(data.stages, (std::vector{Stage::val, Stage::test, Stage::predict}));
  trainer.prepare_data(data);
  EXPECT_TRUE(same(trainer.prepare_batch(Batch{x, x})[0].cpu(), x + 1));
  EXPECT_TRUE(same(trainer.prepare_batch(Batch{x, x}, Stage::val)[0].cpu(), x));
}

TEST_P(OwnLoop, StopEndsTheBatches) {
  Trainer trainer(options());
  TensorData data = ramp(9, 0, 2);
  trainer.prepare_data(data);
  trainer.prepare_model(std::make_shared<Slope>());
  for (const Batch& batch : trainer.train_batches()) {
    trainer.train_step(batch);
    if (trainer.progress().batch == 3) trainer.request_stop();
  }
  EXPECT_TRUE(trainer.is_done());
  EXPECT_EQ(trainer.progress().batch, 3);
}

TEST(OwnLoopErrors, NameMissingDataOrModel) {
  Trainer trainer({.max_epochs = 1});
  TensorData data = ramp(4, 0, 2);
  EXPECT_EQ(error_text<Error>([&] { trainer.train_batches().begin(); }),
            "Trainer::train_batches: no data has been prepared; call prepare_data(data) first");
  trainer.prepare_data(data);
  EXPECT_EQ(error_text<Error>([&] { trainer.train_batches().begin(); }),
            "Trainer::train_batches: no model has been prepared; call prepare_model(model) first");
}

// Creates a new loader for each request.
class Anew : public DataModule {
 public:
  Anew() : DataModule({.batch_size = 4}) {}
  std::shared_ptr<DataLoader> train_dataloader() override { return get_tensorloader({at::arange(4)}, true); }
};

TEST(OwnLoopData, RecreatedLoaderStaysAliveAndKeepsShuffling) {
  Anew data;
  std::vector<at::Tensor> orders;
  for (int epoch = 0; epoch < 3; ++epoch)
    for (const Batch& batch : *data.train_dataloader()) orders.push_back(batch[0].clone());
  ASSERT_EQ(orders.size(), 3U);
  EXPECT_FALSE(same(orders[0], orders[1]) && same(orders[1], orders[2])) << "the same order in every epoch";
}

// Evaluation in the middle of an epoch.
class Evaluating : public Callback {
 public:
  explicit Evaluating(DataModule& data) : data_(data) {}
  void on_train_batch_end(Trainer& trainer, Module&) override {
    const auto random = random_state(trainer.device());
    trainer.predict(trainer.model(), data_);
    trainer.layer_summary(trainer.model(), data_);
    for (std::size_t i = 0; i < random.size(); ++i)
      EXPECT_TRUE(same(random[i], random_state(trainer.device())[i]));
  }

 private:
  DataModule& data_;
};

// Predicts on the very loader that it trains on.
class OneLoader : public TensorData {
 public:
  using TensorData::TensorData;
  std::shared_ptr<DataLoader> predict_dataloader() override { return train_dataloader(); }
};

TEST_P(OwnLoop, EvaluationFromACallbackDoesNotMoveTheTrainingLoader) {
  for (const bool shuffle : {false, true}) {
    const at::Tensor x = at::arange(100, at::kFloat).unsqueeze(1);
    OneLoader data({x, 2 * x}, {}, {.batch_size = 10, .shuffle = shuffle});
    const auto model = std::make_shared<Slope>();
    Trainer(
        {.max_epochs = 2, .num_gpus = num_gpus_wanted(), .callbacks = {std::make_shared<Evaluating>(data)}})
        .fit(model, data);
    EXPECT_EQ(model->train_sizes, std::vector<std::int64_t>(20, 10)) << shuffle;
    EXPECT_EQ(data.num_preparations, 1);
  }
}

TEST_P(OwnLoop, LayerSummaryDrawsNoRandomNumbers) {
  class Noisy : public TensorData {
   public:
    using TensorData::TensorData;
    Batch on_after_batch_transfer(Batch batch) override {
      return Batch{batch[0] + at::rand_like(batch[0]), batch[1]};
    }
  };
  const at::Tensor x = at::zeros({4, 3});
  Noisy data({x, at::zeros({4, 1})}, {}, {.batch_size = 2});
  const auto model = std::make_shared<Slope>();
  Trainer trainer(options());
  const auto random = random_state(trainer.device());
  const auto rows = trainer.layer_summary(model, data);
  for (std::size_t i = 0; i < random.size(); ++i)
    EXPECT_TRUE(same(random[i], random_state(trainer.device())[i]));
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].num_parameters, 1);
}

// A second parameter that is unfrozen after the first epoch.
class TwoSlopes : public Slope {
 public:
  TwoSlopes() : second(register_parameter("second", at::zeros({1}), /*requires_grad=*/false)) {}
  at::Tensor forward(const at::Tensor& x) override { return x * (weight + second); }
  at::Tensor second;
};

TEST_P(OwnLoop, ParameterThatIsUnfrozenLaterIsTrainedFromThenOn) {
  class Unfreeze : public Callback {
   public:
    void on_train_epoch_start(Trainer& trainer, Module& model) override {
      auto& slopes = static_cast<TwoSlopes&>(model);
      if (trainer.progress().epoch == 1) {
        EXPECT_TRUE(same(slopes.second.detach().cpu(), at::zeros({1})));
        slopes.second.requires_grad_(true);
      }
    }
  };
  for (const bool by_options : {false, true}) {
    TensorData data = ramp(4, 0, 2);
    const auto model = std::make_shared<TwoSlopes>();
    TrainerOptions made{
        .max_epochs = 2, .num_gpus = num_gpus_wanted(), .callbacks = {std::make_shared<Unfreeze>()}};
    if (by_options) made.optimizer = sgd(0.01);
    Trainer(made).fit(model, data);
    EXPECT_FALSE(same(model->second.detach().cpu(), at::zeros({1}))) << by_options;
  }
}

// A step that throws, for example out of memory, and is repeated leaves nothing of the first attempt in the
// log.
TEST_P(OwnLoop, RetriedStepCountsOnce) {
  struct Count : Metric {
    at::Tensor update(const at::Tensor& outputs, const at::Tensor&) const override {
      return at::full({2}, outputs.size(0), outputs.options());
    }
    double compute(std::span<const double> sums, double num_samples) const override {
      return 100 * num_samples + sums[0];
    }
  };
  struct Shaky : Slope {
    at::Tensor training_step(const Batch& batch) override {
      const at::Tensor loss = Slope::training_step(batch);
      log("tries", static_cast<double>(++tries));
      if (tries == 2) throw std::runtime_error("no memory left");
      return loss;
    }
    int tries = 0;
  };
  const auto model = std::make_shared<Shaky>();
  model->add_metric("seen", std::make_shared<Count>());
  Trainer trainer({.num_gpus = num_gpus_wanted()});
  trainer.prepare_model(model);
  const auto x = [&](double start) {
    return trainer.prepare_batch(Batch{at::full({4, 1}, start), at::full({4, 1}, 2 * start)});
  };
  trainer.train_step(x(1));
  EXPECT_THROW(trainer.train_step(x(2)), std::runtime_error);
  trainer.train_step(x(3));
  const Metrics values = trainer.finish_epoch();
  EXPECT_EQ(values.at("train_seen"), 808);
  EXPECT_EQ(values.at("tries"), 2);  // of 1 and 3
}

TEST_P(OwnLoop, NonfiniteLossEndsTheFitWithAWarning) {
  class Poisoned : public Slope {
   public:
    at::Tensor training_step(const Batch& batch) override {
      const at::Tensor loss = Slope::training_step(batch);
      return trainer().global_step() == 6 ? loss * std::numeric_limits<double>::quiet_NaN() : loss;
    }
  };
  std::vector<std::string> warnings;
  configure_log({.level = LogLevel::warning});
  set_log_observer([&](LogLevel, const std::string& text) { warnings.push_back(text); });
  TensorData data = ramp(9, 2, 2);
  const FitResult result =
      Trainer({.max_epochs = 9, .num_gpus = num_gpus_wanted()}).fit(std::make_shared<Poisoned>(), data);
  set_log_observer({});
  configure_log({});
  EXPECT_EQ(result.status, FitStatus::diverged);
  EXPECT_EQ(result.reason, FitReason::diverged);
  EXPECT_EQ(result.progress.epoch, 2);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("not finite from step 7 on"), std::string::npos) << warnings[0];
}

TEST_P(OwnLoop, NameLoggedInTrainingAndValidationHasTwoMeans) {
  class Both : public Slope {
   public:
    at::Tensor forward(const at::Tensor& x) override {
      log("largest", x.max());
      return Slope::forward(x);
    }
  };
  TensorData data = ramp(4, 2, 4);
  const FitResult result =
      Trainer({.max_epochs = 1, .num_gpus = num_gpus_wanted()}).fit(std::make_shared<Both>(), data);
  EXPECT_EQ(result.metrics.at("largest"), 3);
  EXPECT_EQ(result.metrics.at("val_largest"), 1);
}

TEST_P(OwnLoop, NamesOfTheModelAppearInStepRecords) {
  class Logging : public Slope {
   public:
    at::Tensor training_step(const Batch& batch) override {
      log("grad_norm", batch[0].sum());  // a name of the trainer's
      log("plain", 2.5);
      return Slope::training_step(batch);
    }
  };
  const auto logger = std::make_shared<MemoryLogger>();
  TensorData data = ramp(4, 0, 2);
  Trainer({.max_epochs = 1,
           .num_gpus = num_gpus_wanted(),
           .gradient_clip_val = 100,
           .log_every_n_steps = 1,
           .optimizer = sgd(0),
           .loggers = {logger}})
      .fit(std::make_shared<Logging>(), data);
  ASSERT_EQ(logger->records().size(), 3U);
  const Record& step = logger->records()[1];
  EXPECT_EQ(names_of(step),
            (std::vector<std::string>{"train_loss_step", "lr", "grad_norm", "grad_norm_step", "plain_step"}));
  EXPECT_NEAR(value_of(step, "grad_norm"), 2.5, 1e-6);  // of the gradients: a square root of squares
  EXPECT_EQ(value_of(step, "grad_norm_step"), 5);       // the model's
  EXPECT_EQ(value_of(logger->records()[2], "grad_norm"), 3) << "the model's mean: 1 and 5";
  EXPECT_EQ(value_of(logger->records()[2], "plain"), 2.5);
}

}  // namespace
}  // namespace kindling
