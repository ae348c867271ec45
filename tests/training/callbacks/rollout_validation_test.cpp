#include "kindling/training/rollout_validation.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/data/array_data.h"
#include "kindling/nn/carried_state.h"
#include "kindling/nn/module.h"
#include "kindling/optim/sgd.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/trainer.h"
#include "kindling/training/validation_report.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

// x → factor · x, in the unit in which the data module gives it. Evaluations count.
class Multiple : public Module {
 public:
  explicit Multiple(double factor) : factor_(register_parameter("factor", at::full({1}, factor))) {}
  at::Tensor forward(const at::Tensor& input) override {
    if (!is_training()) inputs.push_back(input.clone());
    return input * factor_;
  }
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels) override {
    return (outputs - labels).square().mean();
  }
  std::vector<at::Tensor> inputs{};

 private:
  at::Tensor factor_;
};

class Rollout : public testing::Test {
 protected:
  // Three trajectories x_t = start · ratio^t of 12 times, in two channels of three points.
  ArrayDataOptions powers(double ratio) {
    const at::Tensor starts = at::tensor({1., 2., -4.}, at::kDouble).view({3, 1, 1, 1}),
                     times = at::pow(at::full({12}, ratio, at::kDouble), at::arange(12, at::kDouble)),
                     states = (starts * times.view({1, 12, 1, 1})).expand({3, 12, 2, 3}).to(at::kFloat);
    save_safetensors({.tensors = {{"x", states.contiguous()}}, .metadata = {}}, scratch_ / "x.safetensors");
    return {.file = scratch_ / "x.safetensors", .horizon = 1, .layout = "series_time", .rollout_steps = 5};
  }
  static DataOptions last_two() { return {.batch_size = 4, .shuffle = false, .val = {{1, 3}}}; }

  Scratch scratch_;
};

// Starts are times 0 … 6 of the trajectories 2 and -4 times ratio^t; after step k the model is at
// factor^k · x, the data at ratio^k · x.
TEST_F(Rollout, HasTheErrorsOfALinearMapInClosedForm) {
  const double factor = 0.9, ratio = 0.95;
  ArrayData data(powers(ratio), last_two());
  Trainer trainer({.max_epochs = 1});
  const RolloutErrors errors = rollout_errors(trainer, std::make_shared<Multiple>(factor), data);
  EXPECT_EQ(errors.num_starts, 12) << "14 starts as four groups of three";
  ASSERT_EQ(errors.rmse.size(), 5U);
  // The starts are the 14 candidates number i · 14 / 12.
  double squares = 0;
  for (int i = 0; i < 12; ++i) {
    const int start = i * 14 / 12;
    squares += std::pow((start < 7 ? 2 : 4) * std::pow(ratio, start % 7), 2) / 12;
  }
  for (std::size_t k = 1; k <= 5; ++k) {
    const double difference = std::abs(std::pow(factor, k) - std::pow(ratio, k));
    EXPECT_NEAR(errors.relative[k - 1], difference / std::pow(ratio, k), 1e-6) << k;
    EXPECT_NEAR(errors.rmse[k - 1], difference * std::sqrt(squares), 1e-6) << k;
  }
  double sum = 0, all = 0;
  for (std::size_t k = 1; k <= 5; ++k) {
    sum += std::pow(errors.rmse[k - 1], 2);
    all += std::pow(ratio, 2 * static_cast<int>(k)) * squares;
  }
  EXPECT_NEAR(errors.total_rmse, std::sqrt(sum / 5), 1e-9);
  EXPECT_NEAR(errors.total_relative, std::sqrt(sum / all), 1e-6);
}

TEST_F(Rollout, MakesAllStepsWhateverLimitsTheValidation) {
  ArrayData data(powers(0.95), last_two());
  const auto errors_with = [&](const TrainerOptions& options) {
    Trainer trainer(options);
    return rollout_errors(trainer, std::make_shared<Multiple>(0.9), data);
  };
  const RolloutErrors expected = errors_with({.max_epochs = 1});
  for (const RolloutErrors& errors : {errors_with({.max_epochs = 1, .limit_val_batches = 1}),
                                      errors_with({.max_epochs = 1, .overfit_batches = std::int64_t{1}})}) {
    EXPECT_EQ(errors.num_starts, 12);
    EXPECT_EQ(errors.rmse, expected.rmse);
  }
}

TEST_F(Rollout, ForgetsTheCarriedStateBeforeOtherStarts) {
  class Stateful : public Multiple {
   public:
    Stateful() : Multiple(0.5), state_(register_module("state", CarriedState())) {}
    at::Tensor forward(const at::Tensor& input) override {
      is_continued.push_back(state_->hidden(input.size(0)).defined());
      state_->carry(at::zeros({1, input.size(0), 1}));
      return Multiple::forward(input);
    }
    std::vector<bool> is_continued{};

   private:
    CarriedState state_;
  };
  ArrayDataOptions options = powers(0.5);
  options.rollout_steps = 2;
  ArrayData data(options, {.batch_size = 4, .val = {{1, 2}}});
  const auto model = std::make_shared<Stateful>();
  Trainer trainer({.max_epochs = 1});
  rollout_errors(trainer, model, data);
  EXPECT_EQ(model->is_continued, (std::vector{false, true, false, true, false, true})) << "three groups";
}

// A model that changes nothing is off by the difference of two states, whatever the scale.
TEST_F(Rollout, HasErrorsInTheUnitOfTheData) {
  std::vector<RolloutErrors> all;
  for (int scale = 0; scale < 3; ++scale) {
    ArrayDataOptions options = powers(0.5);
    if (scale == 1) options.divisor = 8, options.normalize = {{0.25, 3}};
    if (scale == 2) options.normalize_by = "channels";
    ArrayData data(options, last_two());
    Trainer trainer({.max_epochs = 1});
    all.push_back(rollout_errors(trainer, std::make_shared<Multiple>(1), data));
  }
  for (std::size_t k = 0; k < 5; ++k) {
    EXPECT_NEAR(all[0].relative[k], std::pow(2, k + 1) - 1, 1e-5);
    for (const std::size_t scale : {1, 2}) {
      EXPECT_NEAR(all[scale].rmse[k], all[0].rmse[k], 1e-6);
      EXPECT_NEAR(all[scale].relative[k] / all[0].relative[k], 1, 1e-5);
    }
  }
}

TEST_F(Rollout, FeedsOutputsBack) {
  ArrayDataOptions options = powers(0.5);
  options.rollout_steps = 2;
  ArrayData data(options, {.batch_size = 4, .val = {{1, 2}}});
  const auto model = std::make_shared<Multiple>(3);
  Trainer trainer({.max_epochs = 1});
  rollout_errors(trainer, model, data);
  ASSERT_EQ(model->inputs.size(), 6U) << "three groups of three starts, two steps each";
  for (const std::size_t group : {0, 2, 4})
    EXPECT_TRUE(same(model->inputs[group + 1], model->inputs[group] * 3));
  EXPECT_TRUE(same(model->inputs[0].flatten(1).select(1, 0), at::tensor({2., 1., 0.5}, at::kFloat)));
  EXPECT_TRUE(same(model->inputs[2].flatten(1).select(1, 0), at::tensor({0.25, 0.125, 0.0625}, at::kFloat)));
}

// x(t + 1) = ratio · x(t) + force(t), with a ratio for each series and a force for each time. All numbers are
// exact in float32.
TEST_F(Rollout, HasFurtherInputsOfEachSeriesAndOfEachTime) {
  class Forced : public Module {
   public:
    Forced() { register_parameter("unused", at::zeros({1})); }
    at::Tensor forward_inputs(const Batch& batch) override {
      return batch[0] * batch[1].unsqueeze(1) + batch[2];
    }
  };
  const at::Tensor ratios = at::tensor({2., 0.5, 1.}, at::kFloat),
                   forces = at::arange(18, at::kFloat).view({3, 6, 1});
  std::vector<at::Tensor> times{at::full({3, 1}, 64)};
  for (int t = 0; t < 5; ++t) times.push_back(times.back() * ratios.unsqueeze(1) + forces.select(1, t));
  save_safetensors(
      {.tensors = {{"x", at::stack(times, 1)}, {"ratio", ratios}, {"force", forces}}, .metadata = {}},
      scratch_ / "forced.safetensors");
  ArrayDataOptions options{
      .file = scratch_ / "forced.safetensors", .more_inputs = {"ratio", "force"}, .horizon = 1};
  options.layout = "series_time";
  options.rollout_steps = 5;
  ArrayData data(options, {.batch_size = 4, .val = {{0, 2}}});
  Trainer trainer({.max_epochs = 1});
  EXPECT_EQ(rollout_errors(trainer, std::make_shared<Forced>(), data).rmse, std::vector<double>(5));
}

TEST_F(Rollout, IsRecordedWithEachEpochThatIsValidated) {
  struct Records : Callback {
    void on_epoch_end(Trainer&, Module&, const Record& record) override { records.push_back(record); }
    std::vector<Record> records{};
  };
  ArrayData data(powers(0.95), last_two());
  const auto records = std::make_shared<Records>();
  TrainerOptions options{.max_epochs = 4, .check_val_every_n_epoch = 2};
  options.callbacks = {std::make_shared<RolloutValidation>(), records};
  options.optimizer = [](const ParameterGroups& parameters) {
    return std::make_unique<Sgd>(parameters, SgdOptions{.lr = 0});
  };
  Trainer trainer(options);
  trainer.fit(std::make_shared<Multiple>(0.9), data);
  ASSERT_EQ(records->records.size(), 4U);
  for (const std::size_t epoch : {0, 2}) EXPECT_EQ(records->records[epoch].find("val_rollout_rmse"), nullptr);
  const Record& record = records->records[1];
  const RolloutErrors errors = rollout_errors(trainer, std::make_shared<Multiple>(0.9), data);
  EXPECT_EQ(*record.find("val_rollout_rmse"), errors.total_rmse);
  EXPECT_EQ(*record.find("val_rollout_error"), errors.total_relative);
  EXPECT_EQ(*record.find("val_rollout_rmse/1"), errors.rmse[0]);
  EXPECT_EQ(*record.find("val_rollout_error/5"), errors.relative[4]);
  EXPECT_EQ(record.find("val_rollout_rmse/6"), nullptr);
  EXPECT_EQ(*records->records[3].find("val_rollout_rmse"), errors.total_rmse);
}

TEST_F(Rollout, IsInTheValidationReportOfAnyModel) {
  ArrayData data(powers(0.95), last_two());
  Trainer trainer({.max_epochs = 1});
  const ValidationReport report = validation_report(trainer, std::make_shared<Multiple>(0.9), data);
  EXPECT_FALSE(report.is_empty());
  EXPECT_EQ(report.num_samples, 12);
  write_validation_report(report, scratch_.folder());
  const std::string text = read_file(scratch_ / "rollout.csv", 10'000);
  EXPECT_TRUE(text.starts_with("step,rmse,relative_error\n1,")) << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 6);
  remove_validation_report(scratch_.folder());
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "rollout.csv"));
}

TEST_F(Rollout, NamesModelsAndDataThatDoNotFit) {
  struct OneChannel : Multiple {
    OneChannel() : Multiple(1) {}
    at::Tensor forward(const at::Tensor& input) override { return Multiple::forward(input).narrow(1, 0, 1); }
  };
  ArrayDataOptions options = powers(0.95);
  ArrayData data(options, last_two());
  Trainer trainer({.max_epochs = 1});
  EXPECT_EQ(error_text<DataError>([&] { rollout_errors(trainer, std::make_shared<OneChannel>(), data); }),
            "validation by rollout: the model's outputs are Float [3, 1, 3]; "
            "expected: states like the targets, Float [3, 2, 3]");
  options.rollout_steps = 0;
  ArrayData without(options, last_two());
  EXPECT_EQ(rollout_errors(trainer, std::make_shared<Multiple>(1), without).num_starts, 0);
  Trainer other({.max_epochs = 1, .callbacks = {std::make_shared<RolloutValidation>()}});
  EXPECT_EQ(
      error_text<ConfigError>([&] { other.fit(std::make_shared<Multiple>(1), without); }),
      "RolloutValidation: the data has no rollouts; expected: states in time, such as those of ArrayData "
      "with rollout_steps");
}

// --- Predictions and resumed runs of pairs ---

TEST_F(Rollout, PredictsInTheUnitOfTheData) {
  ArrayDataOptions options = powers(0.5);
  options.divisor = 4;
  options.normalize = {{1, 2}};
  ArrayData data(options, last_two());
  Trainer trainer({.max_epochs = 1});
  const at::Tensor predicted = trainer.predict(std::make_shared<Multiple>(1), data);
  EXPECT_EQ(predicted.sizes(), (std::vector<std::int64_t>{22, 2, 3}));
  EXPECT_TRUE(close(predicted.select(1, 0).select(1, 0).narrow(0, 0, 3),
                    at::tensor({2., 1., 0.5}, at::kFloat), 1e-6));
  at::Tensor taken;
  trainer.predict(std::make_shared<Multiple>(1), data, [&](const Prediction& batch) {
    if (!taken.defined()) taken = batch.outputs.tensors()[0].clone();
  });
  EXPECT_TRUE(same(taken, predicted.narrow(0, 0, 4)));
}

// Saved within an epoch and resumed with another number of workers, with noise on the inputs.
TEST_F(Rollout, ResumesRunsWithNoiseBitIdentically) {
  struct SaveAndStop : Callback {
    explicit SaveAndStop(std::filesystem::path to) : path(std::move(to)) {}
    void on_train_batch_end(Trainer& trainer, Module&) override {
      if (trainer.progress().global_step != 8) return;
      save_checkpoint(trainer.state_dict(), path);
      trainer.request_stop();
    }
    std::filesystem::path path;
  };
  const auto path = scratch_ / "saved.safetensors";
  const auto factor_after = [&](std::int64_t workers, bool stops, const FitOptions& fit) {
    ArrayDataOptions options = powers(0.9);
    options.input_noise = 0.1;
    options.normalize_by = "channels";
    ArrayData data(options, {.batch_size = 4, .val = {{2, 3}}, .seed = 5, .num_workers = workers});
    TrainerOptions trainer_options{.max_epochs = 3, .callbacks = {std::make_shared<RolloutValidation>()}};
    if (stops) trainer_options.callbacks.push_back(std::make_shared<SaveAndStop>(path));
    const auto model = std::make_shared<Multiple>(0.5);
    Trainer(trainer_options).fit(model, data, fit);
    return model->parameters()[0].detach().clone();
  };
  const at::Tensor expected = factor_after(0, false, {});
  for (const std::int64_t workers : {0, 1, 3}) {
    EXPECT_FALSE(same(factor_after(workers, true, {}), expected))
        << "stopped in the second epoch of six steps";
    EXPECT_TRUE(same(factor_after(3 - workers, false, {.resume = path}), expected)) << workers;
  }
}

}  // namespace
}  // namespace kindling
