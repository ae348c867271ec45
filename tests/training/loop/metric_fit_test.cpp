// Metrics of the user in fits and evaluations.
#include <gtest/gtest.h>

#include <limits>

#include "kindling/base/error.h"
#include "kindling/metrics/class_score.h"
#include "kindling/nn/classifier.h"
#include "support/device_under_test.h"
#include "support/log_lines.h"
#include "support/scratch.h"
#include "training/loop/confusion.h"

namespace kindling {
namespace {

class MetricFit : public OnDevice {
 protected:
  TrainerOptions options(std::int64_t epochs) const {
    return {
        .max_epochs = epochs, .num_gpus = num_gpus_wanted(), .optimizer = sgd(0.125), .loggers = {logger_}};
  }
  const std::shared_ptr<MemoryLogger> logger_ = std::make_shared<MemoryLogger>();
};
KINDLING_RUN_ON_TRAINER_DEVICES(MetricFit);

TEST_P(MetricFit, IsComputedFromTheSumsOfEachEpoch) {
  TensorData data = eleven_answers(/*with_validation=*/true);
  Trainer(options(3)).fit(std::make_shared<Echo>(), data);
  ASSERT_EQ(logger_->records().size(), 3U);
  for (const Record& record : logger_->records()) {
    EXPECT_EQ(value_of(record, "train_cells"), kElevenCells);
    EXPECT_EQ(value_of(record, "val_cells"), kElevenCells);
    EXPECT_EQ(value_of(record, "device_to_host_copies"), device_.is_cpu() ? 0 : 2);
  }
}

TEST_P(MetricFit, IsCopiedToTheHostWithTheLog) {
  TensorData data = eleven_answers(/*with_validation=*/false);
  Trainer(options(2)).fit(std::make_shared<Echo>(), data);
  for (const Record& record : logger_->records()) {
    EXPECT_EQ(value_of(record, "train_cells"), kElevenCells);
    EXPECT_EQ(value_of(record, "device_to_host_copies"), device_.is_cpu() ? 0 : 1);
    EXPECT_EQ(value_of(record, "host_waits"), device_.is_cpu() ? 0 : 1);
  }
}

TEST_P(MetricFit, IsMeasuredByValidateAndTest) {
  TensorData data = eleven_answers(/*with_validation=*/true);
  const auto model = std::make_shared<Echo>();
  Trainer trainer(options(1));
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(trainer.validate(model, data).at("val_cells"), kElevenCells);
    EXPECT_EQ(trainer.test(model, data).at("test_cells"), kElevenCells);
  }
}

TEST_P(MetricFit, CountsTheSamplesOfItsBatches) {
  class EveryOther : public Echo {
   public:
    at::Tensor training_step(const Batch& batch) override {
      if (trainer().batch_index() != 1) measure(Stage::train, forward(batch[0]), batch[1]);
      return loss(forward(batch[0]), batch[1]);
    }
  };
  TensorData data = eleven_answers(/*with_validation=*/false);
  Trainer(options(1)).fit(std::make_shared<EveryOther>(), data);
  // The first and the third batch, seven samples.
  EXPECT_EQ(value_of(logger_->records().at(0), "train_cells"), 1 + 1e2 * 1 + 1e4 * 2 + 1e6 * 3 + 1e8 * 7);
}

TEST_P(MetricFit, ReplacesAMetricOfTheSameName) {
  class Labels : public Metric {
   public:
    at::Tensor update(const at::Tensor&, const at::Tensor& labels) const override { return labels.sum(); }
    double compute(std::span<const double> sums, double num_samples) const override {
      return sums[0] / num_samples;
    }
  };
  TensorData data = eleven_answers(/*with_validation=*/true);
  const auto model = std::make_shared<Echo>();
  model->add_metric("cells", std::make_shared<Labels>());
  Trainer(options(1)).fit(model, data);
  EXPECT_EQ(value_of(logger_->records().at(0), "train_cells"), 8. / 11);
  EXPECT_EQ(value_of(logger_->records().at(0), "val_cells"), 8. / 11);
}

// A classifier of two classes whose outputs are its inputs.
class Scores : public Classifier {
 public:
  Scores() : weight_(register_parameter("weight", at::ones({1}))) {}
  at::Tensor forward(const at::Tensor& x) override { return x * weight_; }

 private:
  at::Tensor weight_;
};

// Has a number of its own under the name of its accuracy.
class OwnAccuracy : public Scores {
 public:
  explicit OwnAccuracy(bool also_measures) : also_measures_(also_measures) {}
  void validation_step(const Batch& batch) override {
    if (also_measures_) Scores::validation_step(batch);
    log("val_acc", batch[0].select(1, 0).mean());
  }

 private:
  bool also_measures_;
};

// Three samples in batches of two: right, right, wrong; the scores of class 0 are 1, 4 and 4.
TensorData three_scores() {
  const at::Tensor x = at::tensor({1.F, 0.F, 4.F, 0.F, 4.F, 0.F}).view({3, 2});
  const at::Tensor labels = at::tensor({0, 0, 1}, at::kLong);
  return {{x, labels}, {x, labels}, {.batch_size = 2, .shuffle = false}};
}

// Weighs the samples of its batches, by whether each of them is to be.
class Weighing : public Scores {
 public:
  explicit Weighing(std::vector<bool> weighs) : weighs_(std::move(weighs)) {}
  at::Tensor training_step(const Batch& batch) override {
    step(Stage::train, batch);
    return loss(forward(batch[0]), batch[1]);
  }
  void validation_step(const Batch& batch) override { step(Stage::val, batch); }

 private:
  void step(Stage stage, const Batch& batch) {
    const bool weighs = weighs_[num_batches_++ % weighs_.size()];
    measure(stage, forward(batch[0]), batch[1], weighs ? batch[0].select(1, 0) : at::Tensor());
  }
  std::vector<bool> weighs_;
  std::size_t num_batches_ = 0;
};

TEST_P(MetricFit, AClassifierMeasuresWithWeights) {
  TrainerOptions made = options(2);
  made.optimizer = sgd(0);
  TensorData data = three_scores();  // weights 1, 4 and 4, of which the last is of a wrong answer
  Trainer(made).fit(std::make_shared<Weighing>(std::vector{true}), data);
  ASSERT_EQ(logger_->records().size(), 2U);
  for (const Record& record : logger_->records())
    for (const char* name : {"train_acc", "val_acc"}) EXPECT_EQ(value_of(record, name), 5. / 9) << name;
}

TEST_P(MetricFit, RefusesWeightsOfSomeBatchesOnly) {
  TrainerOptions made = options(1);
  made.num_sanity_val_steps = 0;
  TensorData data = three_scores();
  const auto text_of = [&](const std::vector<bool>& weighs) {
    return error_text<DataError>([&] { Trainer(made).fit(std::make_shared<Weighing>(weighs), data); });
  };
  const std::string rest = " numbers, earlier ones had ", of = "metric 'train_acc': a batch has ";
  EXPECT_EQ(text_of({true, false}).find(of + "1" + rest + "12; expected: the same number for every batch"),
            0U);
  EXPECT_EQ(text_of({false, true}).find(of + "12" + rest + "1; expected: the same number for every batch"),
            0U);
  EXPECT_EQ(text_of({false, false, true, true}), "(no error)");  // training and validation are two
}

TEST_P(MetricFit, PrefersALoggedValueOfTheSameName) {
  TrainerOptions made = options(2);
  made.optimizer = sgd(0);
  Trainer trainer(made);
  TensorData data = three_scores();
  const auto accuracies_of = [&](const std::shared_ptr<Module>& model) {
    trainer.fit(model, data);
    std::vector<double> accuracies;
    for (const Record& record : logger_->records())
      for (const auto& [name, value] : record.values)
        if (name == "val_acc") accuracies.push_back(value);
    return std::vector<double>(accuracies.end() - 2, accuracies.end());
  };
  // One trainer for all: what a name means is a matter of the model that runs.
  EXPECT_EQ(accuracies_of(std::make_shared<Scores>()), (std::vector<double>{2. / 3, 2. / 3}));
  EXPECT_EQ(accuracies_of(std::make_shared<OwnAccuracy>(true)), (std::vector<double>{3, 3}));
  EXPECT_EQ(accuracies_of(std::make_shared<OwnAccuracy>(false)), (std::vector<double>{3, 3}));
  EXPECT_EQ(accuracies_of(std::make_shared<Scores>()), (std::vector<double>{2. / 3, 2. / 3}));
}

// Five samples of seven answers each. Sample i has i + 1 right ones, 15 of 35 together; in float32 the
// sevenths are not exact, and so their sum would depend on the batches.
TensorData five_sevenths(std::int64_t batch_size) {
  const at::Tensor x = at::stack({at::ones({5, 7}), at::zeros({5, 7})}, 1);  // class 0 throughout
  at::Tensor labels = at::ones({5, 7}, at::kLong);
  for (std::int64_t i = 0; i < 5; ++i) labels[i].narrow(0, 0, i + 1).zero_();
  return {{x, labels}, {x, labels}, {.batch_size = batch_size, .shuffle = false}};
}

TEST_P(MetricFit, AccuracyOfManyAnswersDoesNotDependOnTheBatchSize) {
  for (const std::int64_t batch_size : {1, 2, 3, 4, 5}) {
    TrainerOptions made = options(1);
    made.log_every_n_steps = 1;
    TensorData data = five_sevenths(batch_size);
    Trainer(made).fit(std::make_shared<Scores>(), data);
    const Record& epoch = logger_->records().back();
    for (const char* name : {"train_acc", "val_acc"})
      EXPECT_EQ(value_of(epoch, name), 15. / 35) << batch_size;
  }
  // Of the last step of the last fit, which had all of them.
  EXPECT_EQ(value_of(logger_->records().at(logger_->records().size() - 2), "train_acc_step"), 15. / 35);
}

TEST_P(MetricFit, AccuracyRefusesSeveralClassesAtOnce) {
  const at::Tensor x = at::eye(3), labels = at::ones({3, 3}) - at::eye(3);
  TensorData data({x, labels}, {}, {.batch_size = 2, .shuffle = false});
  const std::string text =
      error_text<DataError>([&] { Trainer(options(1)).fit(std::make_shared<Scores>(), data); });
  EXPECT_EQ(text.find("accuracy: labels of the outputs' shape do not add up to 1"), 0U) << text;
}

// Its loss knows nothing of its outputs, so that their NaN do not reach the weights.
class ScoresWithoutLoss : public Scores {
 public:
  at::Tensor loss(const at::Tensor&, const at::Tensor&) override { return parameters()[0].sum() * 0; }
};

// Six samples of class 0, two of them without a finite score, in batches of 4 and 2.
TEST_P(MetricFit, CountsOutputsWithNaN) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const at::Tensor x =
      at::tensor({2., 1., nan, 1., 3., 1., 1., 2., nan, nan, 5., 1.}).view({6, 2}).to(at::kFloat);
  const at::Tensor labels = at::zeros({6}, at::kLong);
  TensorData data({x, labels}, {x, labels}, {.batch_size = 4, .shuffle = false});
  const auto model = std::make_shared<ScoresWithoutLoss>();
  model->add_metric("f1", std::make_shared<ClassScore>(ClassScoreOptions{.average = "micro"}));
  TrainerOptions made = options(1);
  made.optimizer = sgd(0);
  made.num_sanity_val_steps = 0;
  LogLines lines;
  EXPECT_EQ(Trainer(made).validate(model, data).at("val_acc"), 3. / 6);
  const std::string rest =
      " outputs with NaN: 2 in this epoch; they have no class: accuracies and scores count them as wrong, "
      "and "
      "an area under the ROC curve is NaN";
  EXPECT_EQ(lines.texts, (std::vector<std::string>{"metrics: val" + rest}));
  lines.texts.clear();
  Trainer(made).fit(model, data);
  EXPECT_EQ(lines.texts, (std::vector<std::string>{"metrics: val" + rest, "metrics: train" + rest}));
  EXPECT_EQ(value_of(logger_->records().at(0), "val_f1"), 2 * 3. / (6 + 4));
}

TEST(MetricsOfAModel, AreDrawnForTheValidation) {
  EXPECT_TRUE(Scores().is_plotted("val_acc"));
  EXPECT_TRUE(Echo().is_plotted("val_cells"));
  EXPECT_FALSE(Echo().is_plotted("train_cells"));
}

}  // namespace
}  // namespace kindling
