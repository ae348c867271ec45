// The batches that a limit applies to.
#include <gtest/gtest.h>

#include "training/loop/small_fit.h"

namespace kindling {
namespace {

class Counting : public Slope {
 public:
  void test_step(const Batch& batch) override {
    ++num_test_batches;
    Slope::test_step(batch);
  }
  at::Tensor predict_step(const Batch& batch) override {
    ++num_predict_batches;
    return Slope::predict_step(batch);
  }
  std::int64_t num_test_batches = 0, num_predict_batches = 0;
};

struct Evaluated {
  std::int64_t val, test, predict, rows;  // batches, and the rows of predict()
  friend bool operator==(const Evaluated&, const Evaluated&) = default;
};

// Four batches of two samples each.
Evaluated evaluated_with(TrainerOptions options) {
  const auto model = std::make_shared<Counting>();
  TensorData data = ramp(8, 8, 2);
  options.max_epochs = 1;
  Trainer trainer(options);
  trainer.validate(model, data);
  trainer.test(model, data);
  const std::int64_t rows = trainer.predict(model, data).size(0);
  return {model->num_val_batches, model->num_test_batches, model->num_predict_batches, rows};
}

TEST(EvaluationLimits, EachAppliesToItsLoopOnly) {
  EXPECT_EQ(evaluated_with({}), (Evaluated{4, 4, 4, 8}));
  EXPECT_EQ(evaluated_with({.limit_train_batches = 1}), (Evaluated{4, 4, 4, 8}));
  EXPECT_EQ(evaluated_with({.limit_val_batches = 1}), (Evaluated{1, 4, 4, 8}));
  EXPECT_EQ(evaluated_with({.limit_test_batches = 2}), (Evaluated{4, 2, 4, 8}));
  EXPECT_EQ(evaluated_with({.limit_predict_batches = 3}), (Evaluated{4, 4, 3, 6}));
}

TEST(EvaluationLimits, FastDevRunIsOneBatchOfEach) {
  EXPECT_EQ(evaluated_with({.fast_dev_run = true}), (Evaluated{1, 1, 1, 2}));
}

TEST(EvaluationLimits, SanityCheckRespectsTheValidationLimit) {
  const auto model = std::make_shared<Slope>();
  TensorData data = ramp(8, 8, 2);
  Trainer({.max_epochs = 1, .limit_val_batches = 1, .num_sanity_val_steps = 3}).fit(model, data);
  EXPECT_EQ(model->num_val_batches, 1 + 1);
}

TEST(EvaluationLimits, StopTakesEffectAfterTheSanityCheck) {
  class StopsAtOnce : public Slope {
   public:
    void validation_step(const Batch& batch) override {
      Slope::validation_step(batch);
      token.request_stop();
    }
    StopToken token;
  };
  const auto model = std::make_shared<StopsAtOnce>();
  TensorData data = ramp(8, 8, 2);
  Trainer trainer({.max_epochs = 1, .num_sanity_val_steps = 3});
  model->token = trainer.stop_token();
  EXPECT_EQ(trainer.fit(model, data).progress.global_step, 0);
  EXPECT_EQ(model->num_val_batches, 3);  // a resumed run relies on their random numbers
}

// A loss is 2·x of a batch at weight 0: the mean over all of 0, 1, 2, 3, 4 shows that none is skipped, and
// that the last batch has half the weight.
TEST(EvaluationLimits, ValidationCountsTheSamplesThatDropLastWouldSkip) {
  const at::Tensor x = at::arange(5, at::kFloat).unsqueeze(1);
  TensorData data({x, 2 * x}, {x, 2 * x}, {.batch_size = 2, .shuffle = false, .drop_last = true});
  const auto model = std::make_shared<Slope>();
  Trainer trainer({.max_epochs = 1, .num_sanity_val_steps = 0, .optimizer = sgd(0)});
  const FitResult result = trainer.fit(model, data);
  EXPECT_EQ(model->train_sizes, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(model->num_val_batches, 3);
  EXPECT_EQ(result.metrics.at("val_loss"), 4);
  EXPECT_EQ(result.metrics.at("train_loss"), 3);
  EXPECT_EQ(trainer.validate(model, data).at("val_loss"), 4);
  EXPECT_EQ(trainer.test(model, data).at("test_loss"), 4);
}

}  // namespace
}  // namespace kindling
