// The shipped metrics in fits and in custom steps.
#include "training/loop/measured_fit.h"

#include <gtest/gtest.h>

#include <limits>

#include "kindling/base/error.h"
#include "support/device_under_test.h"
#include "support/scratch.h"

namespace kindling {
namespace {

class MeasuredFit : public OnDevice {
 protected:
  Record first_epoch(const std::shared_ptr<Module>& model, const MetricBatch& answers,
                     const std::string& on_nonfinite = "stop", std::int64_t window = 1) const {
    const auto logger = std::make_shared<MemoryLogger>();
    TensorData data = answers_as_data(answers);
    Trainer({.max_epochs = 1,
             .num_gpus = num_gpus_wanted(),
             .accumulate_grad_batches = window,
             .on_nonfinite = on_nonfinite,
             .optimizer = sgd(0.1),
             .loggers = {logger}})
        .fit(model, data);
    return logger->records().at(0);
  }
  double cards_error(double value) const { return device_.is_cuda() ? 1e-6 * value : 0; }
  void expect_values(const Record& record, const std::string& prefix, const MetricBatch& answers) const {
    for (const std::string& name : kMetricsOfClasses) {
      const auto metric = shipped_metric(name);
      const auto count = answers.outputs.size(0);
      for (const auto& [ending, value] : values_of(*metric, answers.part_of(*metric), count))
        // A GPU's exp() differs from the host's in the last bits.
        EXPECT_NEAR(value_of(record, prefix + name + ending), value, cards_error(value))
            << prefix + name + ending;
    }
  }
};
KINDLING_RUN_ON_TRAINER_DEVICES(MeasuredFit);

TEST_P(MeasuredFit, MeasuresTheEpochLikeOneBatch) {
  const auto model = std::make_shared<Passing>();
  measure_classes(*model);
  MetricBatch answers = some_answers();
  answers.weights.reset();
  const Record record = first_epoch(model, answers);
  expect_values(record, "train_", answers);
  expect_values(record, "val_", answers);
  // Of training and validation: the log, and the areas of all samples.
  EXPECT_EQ(value_of(record, "device_to_host_copies"), device_.is_cpu() ? 0 : 4);
  EXPECT_EQ(value_of(record, "host_waits"), device_.is_cpu() ? 0 : 4);
}

TEST_P(MeasuredFit, MeasuresByNameInCustomSteps) {
  class Weighing : public Passing {
   public:
    void validation_step(const Batch& batch) override {
      for (const std::string& name : kMetricsOfClasses)
        if (name != "top2") measure(Stage::val, name, batch[0], batch[1], batch[2]);
      measure(Stage::test, batch[0], batch[1], batch[2]);
      measure(Stage::val, "top2", batch[0], batch[1], batch[2]);
    }
    at::Tensor training_step(const Batch& batch) override { return loss(forward(batch[0]), batch[1]); }
  };
  const auto model = std::make_shared<Weighing>();
  measure_classes(*model);
  const Record record = first_epoch(model, some_answers());
  expect_values(record, "val_", some_answers());
  expect_values(record, "test_", some_answers());
  EXPECT_EQ(record.find("train_f1_macro"), nullptr);
}

TEST_P(MeasuredFit, RefusesAnUnknownMetricName) {
  class Mistyping : public Passing {
   public:
    void validation_step(const Batch& batch) override { measure(Stage::val, wanted, batch[0], batch[1]); }
    std::string wanted = "f1_makro";
  };
  const auto model = std::make_shared<Mistyping>();
  const auto text = [&] { return error_text<ConfigError>([&] { first_epoch(model, some_answers()); }); };
  EXPECT_NE(text().find("add_metric()"), std::string::npos) << text();
  measure_classes(*model);
  EXPECT_NE(text().find("has no metric 'f1_makro'; expected: one of top2, f1_macro"), std::string::npos)
      << text();
  EXPECT_NE(text().find("did you mean 'f1_macro'?"), std::string::npos) << text();
}

TEST_P(MeasuredFit, RefusesInvalidLabelsAtTheEndOfTheEpoch) {
  const auto model = std::make_shared<Passing>();
  model->add_metric("f1", shipped_metric("f1_macro"));
  MetricBatch answers = some_answers();
  answers.weights.reset();
  answers.labels[17] = 5;
  const std::string text = error_text<DataError>([&] { first_epoch(model, answers); });
  EXPECT_NE(text.find("a label in the epoch is not a class of the outputs"), std::string::npos) << text;
}

// The sums of a skipped step are reverted, with all batches of its window.
TEST_P(MeasuredFit, ExcludesSkippedSteps) {
  class Weighted : public Passing {
   public:
    at::Tensor loss(const at::Tensor& y, const at::Tensor& weights) override {
      return (y.sum(1) * weights).sum();
    }
    at::Tensor training_step(const Batch& batch) override {
      measure(Stage::train, batch[0], batch[1]);
      return loss(forward(batch[0]), batch[2]);
    }
    void validation_step(const Batch&) override {}
  };
  class Samples : public Metric {
   public:
    at::Tensor update(const at::Tensor& outputs, const at::Tensor&) const override {
      return at::ones({2}, outputs.options());
    }
    double compute(std::span<const double>, double num_samples) const override { return num_samples; }
  };
  for (const std::int64_t window : {1, 2}) {
    const auto model = std::make_shared<Weighted>();
    measure_classes(*model);
    model->add_metric("samples", std::make_shared<Samples>());
    MetricBatch answers = some_answers();
    answers.weights[13] = std::numeric_limits<float>::infinity();  // in the second of four batches
    answers.weights[14] = -std::numeric_limits<float>::infinity();
    const Record record = first_epoch(model, answers, "skip", window);
    EXPECT_EQ(value_of(record, "skipped_steps"), 1);
    const std::int64_t first = window == 1 ? 8 : 0;
    const MetricBatch before = answers.rows(0, first), after = answers.rows(16, 29);
    expect_values(record, "train_",
                  {at::cat({before.outputs, after.outputs}), at::cat({before.labels, after.labels})});
    EXPECT_EQ(value_of(record, "train_samples"), 29 - 16 + first);
  }
}

}  // namespace
}  // namespace kindling
