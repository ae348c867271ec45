#include <gtest/gtest.h>
#include <torch/nn.h>

#include <thread>

#include "kindling/base/error.h"
#include "kindling/data/synthetic_regression.h"
#include "kindling/models/linear_regression.h"
#include "kindling/optim/decay_schedules.h"
#include "kindling/tensors/state_dict.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

class Fit : public OnDevice {
 protected:
  TrainerOptions options(std::int64_t max_epochs) const {
    return {.max_epochs = max_epochs, .num_gpus = num_gpus_wanted(), .optimizer = sgd(0.125)};
  }

  const std::shared_ptr<Slope> model_ = std::make_shared<Slope>();
};
KINDLING_RUN_ON_TRAINER_DEVICES(Fit);

TEST_P(Fit, FindsTheTrueWeights) {
  SyntheticRegression data({.w = {2, -3.4}, .b = 4.2}, {.batch_size = 32});
  const auto model = std::make_shared<LinearRegression>();
  Trainer trainer({.max_epochs = 3, .num_gpus = num_gpus_wanted(), .optimizer = sgd(0.03)});
  const FitResult result = trainer.fit(model, data);
  EXPECT_EQ(result.status, FitStatus::finished);
  EXPECT_EQ(result.progress.epoch, 3);
  EXPECT_EQ(result.progress.global_step, 3 * 32);
  // Noise of deviation 0.01 on 1000 samples moves the optimum by about 0.01 / √1000 = 0.0003; the rest is
  // the distance left after 96 steps of rate 0.03: (1 - 2·0.03)^96 · 4 = 0.01.
  EXPECT_TRUE(close(model->parameters()[0], at::tensor({2.f, -3.4f}).unsqueeze(0), 0.01));
  EXPECT_TRUE(close(model->parameters()[1], at::tensor({4.2f}), 0.01));
  EXPECT_LT(result.metrics.at("val_loss"), 1e-3);
  EXPECT_EQ(model->parameters()[0].device(), device_);
}

// Batches {0, 1}, {2, 3}, {4}: the gradients are -0.5, -2.5, -4 as long as w < 2, the losses (2 - w)·mean(x).
TEST_P(Fit, MatchesTheStepsDoneByHand) {
  TensorData data = ramp(5, 2, 2);
  Trainer trainer(options(1));
  const FitResult result = trainer.fit(model_, data);
  EXPECT_EQ(model_->train_sizes, (std::vector<std::int64_t>{2, 2, 1}));
  EXPECT_EQ(model_->seen_batch_indices, (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_TRUE(same(model_->weight, at::tensor({0.875f})));  // (0.5 + 2.5 + 4) / 8
  // Losses 1, 1.9375·2.5, 1.625·4 for 2, 2 and 1 samples; then the validation of {0, 1}: 1.125 / 2.
  EXPECT_DOUBLE_EQ(result.metrics.at("train_loss"), (2 * 1 + 2 * 4.84375 + 6.5) / 5);
  EXPECT_DOUBLE_EQ(result.metrics.at("val_loss"), 0.5625);
  EXPECT_EQ(data.num_preparations, 1);
}

TEST_P(Fit, TrainsEvenIfTheCallerHasSwitchedGradientsOff) {
  const at::NoGradGuard no_grad;
  TensorData data = ramp(5, 2, 2);
  Trainer trainer(options(1));
  trainer.fit(model_, data);
  EXPECT_TRUE(same(model_->weight.detach(), at::tensor({0.875f})));  // as with gradients
  EXPECT_FALSE(at::GradMode::is_enabled());
}

TEST_P(Fit, ClipsToTheNorm) {
  TensorData data = ramp(5, 0, 2);
  TrainerOptions clipped = options(1);
  clipped.gradient_clip_val = 1;
  Trainer(clipped).fit(model_, data);
  EXPECT_TRUE(close(model_->weight, at::tensor({(0.5f + 1 + 1) / 8}), 1e-6));  // norms 0.5, 2.5, 4, plus 1e-6
}

TEST_P(Fit, CustomLoopGivesTheSameWeights) {
  const auto make = [&] {
    TrainerOptions made = options(2);
    made.gradient_clip_val = 1;
    made.schedule = step_schedule({.step_size = 2, .gamma = 0.5});
    return made;
  };
  TensorData data = ramp(7, 2, 2), same_data = ramp(7, 2, 2);
  Trainer fitting(make()), own(make());
  const FitResult result = fitting.fit(model_, data);

  const auto model = std::make_shared<Slope>();
  own.prepare_model(model);
  Metrics means;
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    for (const Batch& batch : *same_data.train_dataloader()) own.train_step(own.prepare_batch(batch));
    EXPECT_EQ(own.progress().batch, 4);
    means = own.finish_epoch();
  }
  EXPECT_TRUE(same(model->weight, model_->weight));
  EXPECT_EQ(means.at("train_loss"), result.metrics.at("train_loss"));
  EXPECT_EQ(own.progress().epoch, 2);
  EXPECT_EQ(own.progress().global_step, 8);
  EXPECT_EQ(own.progress().batch, 0);
  EXPECT_EQ(own.lr(), fitting.lr());
}

TEST_P(Fit, CustomLoopLogsInAdditionToTheModel) {
  Trainer trainer(options(1));
  trainer.prepare_model(model_);
  const at::Tensor x = at::ones({2, 1});
  for (const double reward : {1., 5.}) {
    trainer.log("reward", at::full({}, reward).to(trainer.device()));
    trainer.train_step(trainer.prepare_batch(Batch{x, x * 2}));
  }
  EXPECT_DOUBLE_EQ(trainer.finish_epoch().at("reward"), 3);
  trainer.train_step(trainer.prepare_batch(Batch{x, x * 2}));
  EXPECT_FALSE(trainer.finish_epoch().contains("reward"));
}

TEST_P(Fit, PreparesBatchesOfAnyStructure) {
  const Trainer trainer(options(1));
  const Batch batch = trainer.prepare_batch(
      Batch::map({{"x", Batch::leaf(at::ones({2}))},
                  {"rest", Batch{at::ones({2}), at::ones({2}, at::kLong), at::ones({2}, at::kBool)}}}));
  EXPECT_EQ(batch.tensors().size(), 4);
  for (const at::Tensor& tensor : batch.tensors()) EXPECT_EQ(tensor.device(), device_);
  EXPECT_TRUE(same(batch.part("rest")[1], at::ones({2}, at::kLong)));
}

TEST_P(Fit, PreparedModelKnowsItsTrainer) {
  Trainer trainer(options(4));
  trainer.prepare_model(model_);
  EXPECT_EQ(model_->trainer().max_epochs(), 4);
  EXPECT_EQ(model_->trainer().gpus(), trainer.gpus());
  EXPECT_EQ(model_->trainer().device(), device_);
  EXPECT_EQ(model_->weight.device(), device_);
}

// A model that has its parameter twice, as tied embeddings do.
class Tied : public Slope {
 public:
  Tied() { register_parameter("again", weight); }
};

TEST_P(Fit, ParameterRegisteredTwiceIsUpdatedOnce) {
  TensorData data = ramp(2, 0, 2);
  const auto tied = std::make_shared<Tied>();
  Trainer(options(1)).fit(tied, data);
  EXPECT_TRUE(same(tied->weight, at::tensor({0.0625f})));
}

TEST_P(Fit, FrozenAndUnusedParametersStay) {
  TensorData data = ramp(4, 0, 2);
  const at::Tensor unused = model_->register_parameter("unused", at::ones({1}));
  const at::Tensor frozen = model_->register_parameter("frozen", at::ones({1}), /*requires_grad=*/false);
  TrainerOptions adam = options(1);
  adam.optimizer = {};
  Trainer(adam).fit(model_, data);
  EXPECT_TRUE(same(model_->named_parameters()["unused"], at::ones({1})));
  EXPECT_TRUE(same(model_->named_parameters()["frozen"], at::ones({1})));
  EXPECT_FALSE(same(model_->weight, at::zeros({1})));
}

TEST_P(Fit, SecondFitContinuesFromTheWeightsWithFreshCounters) {
  TensorData data = ramp(2, 0, 2);
  Trainer trainer(options(1));
  trainer.fit(model_, data);
  const FitResult second = trainer.fit(model_, data);
  EXPECT_EQ(second.progress.global_step, 1);
  EXPECT_TRUE(same(model_->weight, at::tensor({0.125f})));
}

struct Limits {
  std::vector<std::int64_t> train_sizes;
  std::int64_t num_val_batches = 0, num_epochs = 0, num_records = 0;
  friend bool operator==(const Limits&, const Limits&) = default;
};

// Five training batches (the last one short) and three validation batches of two.
Limits run_with(TrainerOptions options) {
  const auto model = std::make_shared<Slope>();
  const auto logger = std::make_shared<MemoryLogger>();
  TensorData data = ramp(9, 6, 2);
  options.optimizer = sgd(0.01);
  options.loggers = {logger};
  const FitResult result = Trainer(options).fit(model, data);
  EXPECT_EQ(result.progress.global_step, static_cast<std::int64_t>(model->train_sizes.size()));
  return {model->train_sizes, model->num_val_batches, result.progress.epoch,
          static_cast<std::int64_t>(logger->records().size())};
}

TEST(TrainerLimits, SanityStepsComeFirstAndLeaveNoRecord) {
  EXPECT_EQ(run_with({.max_epochs = 1}), (Limits{{2, 2, 2, 2, 1}, 2 + 3, 1, 1}));
  EXPECT_EQ(run_with({.max_epochs = 1, .num_sanity_val_steps = 0}), (Limits{{2, 2, 2, 2, 1}, 3, 1, 1}));
}

TEST(TrainerLimits, FastDevRunIsOneBatchOfEach) {
  EXPECT_EQ(run_with({.max_epochs = 7, .fast_dev_run = true}), (Limits{{2}, 1, 1, 1}));
  EXPECT_EQ(run_with({.fast_dev_run = true}), (Limits{{2}, 1, 1, 1}));
}

TEST(TrainerLimits, BatchesOfAnEpoch) {
  EXPECT_EQ(run_with({.max_epochs = 2, .limit_train_batches = 1, .limit_val_batches = 1}),
            (Limits{{2, 2}, 1 + 2, 2, 2}));
  EXPECT_EQ(run_with({.max_epochs = 1, .limit_train_batches = 99, .limit_val_batches = 99}),
            (Limits{{2, 2, 2, 2, 1}, 2 + 3, 1, 1}));
  EXPECT_EQ(run_with({.max_epochs = 1, .limit_val_batches = 0}), (Limits{{2, 2, 2, 2, 1}, 0, 1, 1}));
}

TEST(TrainerLimits, StepsEndInTheMiddleOfAnEpoch) {
  EXPECT_EQ(run_with({.max_steps = 7}), (Limits{{2, 2, 2, 2, 1, 2, 2}, 2 + 6, 2, 2}));
  EXPECT_EQ(run_with({.max_epochs = 1, .max_steps = 99}), (Limits{{2, 2, 2, 2, 1}, 5, 1, 1}));
  EXPECT_EQ(run_with({.max_epochs = 9, .max_steps = 5}), (Limits{{2, 2, 2, 2, 1}, 5, 1, 1}));
}

TEST(TrainerErrors, RequireMaxEpochsOrMaxSteps) {
  TensorData data = ramp(2, 0, 2);
  const std::string text = error_text<ConfigError>([&] { Trainer().fit(std::make_shared<Slope>(), data); });
  EXPECT_EQ(
      text,
      "Trainer::fit: neither max_epochs nor max_steps is set; expected: at least one of them; for example "
      "max_epochs = 10");
}

TEST(TrainerErrors, OptionsOutOfRangeAreRefused) {
  EXPECT_THROW(Trainer({.max_epochs = 0}), ConfigError);
  EXPECT_THROW(Trainer({.num_gpus = -2}), ConfigError);
  EXPECT_THROW(Trainer({.gradient_clip_val = -1}), ConfigError);
  EXPECT_THROW(Trainer({.max_steps = 0}), ConfigError);
}

template <class Loss>
class WithLoss : public Slope {
 public:
  at::Tensor training_step(const Batch& batch) override { return Loss()(forward(batch[0])); }
};
struct PerSample {
  at::Tensor operator()(const at::Tensor& y) const { return y; }
};
struct Detached {
  at::Tensor operator()(const at::Tensor& y) const { return y.mean().detach(); }
};
struct Undefined {
  at::Tensor operator()(const at::Tensor&) const { return {}; }
};

template <class Loss>
std::string text_with_loss() {
  TensorData data = ramp(4, 0, 2);
  return error_text<Error>([&] { Trainer({.max_epochs = 1}).fit(std::make_shared<WithLoss<Loss>>(), data); });
}

TEST(TrainerErrors, RequireAScalarLossWithAGradient) {
  const std::string per_sample = text_with_loss<PerSample>();
  EXPECT_NE(per_sample.find("::training_step: a tensor of 2 elements was returned"), std::string::npos)
      << per_sample;
  EXPECT_NE(per_sample.find("return its mean()"), std::string::npos);
  const std::string detached = text_with_loss<Detached>();
  EXPECT_NE(detached.find("a tensor without a gradient function was returned"), std::string::npos);
  EXPECT_NE(detached.find("check whether all parameters are frozen"), std::string::npos) << detached;
  EXPECT_NE(text_with_loss<Undefined>().find("an undefined tensor was returned"), std::string::npos);
}

TEST(TrainerErrors, ErrorsOfLibTorchAreTranslatedWithTheOriginalInside) {
  TensorData data({at::ones({2, 3}), at::ones({2, 4})}, {}, {.batch_size = 2});
  try {
    Trainer({.max_epochs = 1}).fit(std::make_shared<Slope>(), data);
    FAIL() << "shapes that do not fit were taken";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("Trainer::fit: The size of tensor a (3) must match"), 0)
        << error.what();
    EXPECT_THROW(std::rethrow_if_nested(error), c10::Error);
  }
}

TEST(TrainerErrors, ModelNeedsParameters) {
  class Fixed : public Module {
   public:
    at::Tensor training_step(const Batch& batch) override { return batch[0].mean(); }
  };
  TensorData data = ramp(2, 0, 2);
  EXPECT_THROW(Trainer({.max_epochs = 1}).fit(std::make_shared<Fixed>(), data), ConfigError);
}

TEST(TrainerErrors, TrainingStepBeforePrepareModelIsRefused) {
  Trainer trainer({.max_epochs = 1});
  EXPECT_THROW(trainer.train_step(Batch{at::ones({1, 1}), at::ones({1, 1})}), Error);
}

}  // namespace
}  // namespace kindling
