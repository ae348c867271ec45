// The numbers of scikit-learn and torchmetrics, which fixtures/make_metrics.py has written.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <limits>

#include "kindling/base/error.h"
#include "kindling/tensors/state_dict.h"
#include "metrics/shipped_metrics.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

class MetricValues : public OnDevice {
 protected:
  struct Case {
    MetricBatch batch;
    std::int64_t ignore_index = -100;
    std::map<std::string, at::Tensor> expected{};  // by metric
  };

  std::map<std::string, Case> cases() const {
    std::map<std::string, Case> all;
    for (const auto& [name, tensor] :
         load_safetensors(std::filesystem::path(KINDLING_TESTS) / "metrics/fixtures/metrics.safetensors")
             .tensors) {
      const std::size_t dot = name.find('.');
      Case& of = all[name.substr(0, dot)];
      const std::string what = name.substr(dot + 1);
      if (what == "outputs") of.batch.outputs = tensor.to(device_);
      if (what == "labels") of.batch.labels = tensor.to(device_);
      if (what == "weights") of.batch.weights = tensor.to(device_);
      if (what == "ignore_index") of.ignore_index = tensor.item<std::int64_t>();
      if (what.starts_with("expect.")) of.expected[what.substr(7)] = tensor;
      if (what == "expect.top1") of.expected["accuracy"] = tensor;  // the same number
    }
    return all;
  }

  at::Tensor on(const at::Tensor& tensor) const { return tensor.to(device_); }
};
KINDLING_RUN_ON_DEVICES(MetricValues);

TEST_P(MetricValues, MatchTheReferences) {
  std::size_t num_values = 0;
  double largest = 0;
  for (const auto& [name, of] : cases())
    for (const auto& [metric_name, expected] : of.expected) {
      const auto metric = shipped_metric(metric_name, of.ignore_index);
      const NamedValues values = values_of(*metric, of.batch.part_of(*metric), of.batch.outputs.size(0));
      ASSERT_EQ(static_cast<std::int64_t>(values.size()), expected.numel()) << name << " " << metric_name;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double wanted = expected.const_data_ptr<double>()[i], found = values[i].second;
        ++num_values;
        if (std::isnan(wanted) && std::isnan(found)) continue;
        // What is asked of them; perplexities and errors are about 1, confusions up to 200.
        EXPECT_NEAR(found, wanted, 1e-6 * std::max(1., std::abs(wanted)))
            << name << " " << metric_name << values[i].first;
        largest = std::max(largest, std::abs(found - wanted));
      }
    }
  EXPECT_GT(num_values, 700U);
  std::cout << num_values << " values of metrics on " << device_ << ", the largest difference " << largest
            << "\n";
}

// In parts of any size and in any order.
TEST_P(MetricValues, AreBitIdenticalForAnyBatches) {
  for (const auto& [name, of] : cases())
    for (const auto& [metric_name, expected] : of.expected) {
      const auto metric = shipped_metric(metric_name, of.ignore_index);
      const std::int64_t count = of.batch.outputs.size(0);
      const NamedValues whole = values_of(*metric, of.batch.part_of(*metric), count);
      for (const std::vector<std::int64_t>& cuts :
           {std::vector<std::int64_t>{count / 2, count}, {1, 3, count / 3, count - 4, count}}) {
        at::Tensor sums;
        for (std::size_t i = cuts.size(); i-- > 0;) {
          const at::Tensor part = of.batch.rows(i == 0 ? 0 : cuts[i - 1], cuts[i]).part_of(*metric);
          sums = !sums.defined() ? part : metric->keeps_samples() ? at::cat({sums, part}) : sums + part;
        }
        const NamedValues parts = values_of(*metric, sums, count);
        ASSERT_EQ(parts.size(), whole.size());
        for (std::size_t i = 0; i < whole.size(); ++i)
          EXPECT_TRUE(parts[i].second == whole[i].second ||
                      (std::isnan(parts[i].second) && std::isnan(whole[i].second)))
              << name << " " << metric_name << whole[i].first << ": " << parts[i].second - whole[i].second;
      }
    }
}

// Missing labels count as if they did not exist, with the weights of their samples.
TEST_P(MetricValues, SkipMissingLabels) {
  at::manual_seed(8);
  const at::Tensor outputs = at::randn({50, 3}), weights = at::rand({50}).to(at::kDouble),
                   is_missing = at::rand({50, 3}).lt(0.4);
  at::Tensor labels = (outputs + 0.5 * at::randn({50, 3})).masked_fill(is_missing, NAN);
  labels.select(1, 2).fill_(NAN);
  const auto value = [&](const Metric& metric, const at::Tensor& some, const at::Tensor& wanted,
                         const at::Tensor& weight) {
    const MetricBatch batch{on(some), on(wanted), on(weight)};
    return values_of(metric, batch.part_of(metric), some.size(0))[0].second;
  };
  const auto there = is_missing.logical_not().narrow(1, 0, 2).nonzero();
  const at::Tensor rows = there.select(1, 0), columns = there.select(1, 1);
  for (const std::string error : {"mae", "mse", "rmse"}) {
    const MeanError by_label({.error = error}), ignoring({.error = error, .ignore_missing = true});
    EXPECT_NEAR(value(ignoring, outputs, labels, weights),
                value(by_label, outputs.index({rows, columns}), labels.index({rows, columns}),
                      weights.index_select(0, rows)),
                1e-7)
        << error;
  }
  double sum = 0;
  for (std::int64_t i = 0; i < 2; ++i) {
    const at::Tensor of_output = is_missing.select(1, i).logical_not().nonzero().squeeze(1);
    sum += value(R2(), outputs.select(1, i).index_select(0, of_output),
                 labels.select(1, i).index_select(0, of_output), weights.index_select(0, of_output));
  }
  const R2 r2({.ignore_missing = true});
  EXPECT_NEAR(value(r2, outputs, labels, weights), sum / 2, 1e-12);
  at::Tensor with_one = labels.clone();  // an output with a single label has no score
  with_one.select(1, 2)[3] = 1;
  EXPECT_NEAR(value(r2, outputs, with_one, weights), sum / 2, 1e-12);
  const R2 per_output({.average = "per_output", .ignore_missing = true});
  const MetricBatch all{on(outputs), on(labels), on(weights)};
  EXPECT_TRUE(std::isnan(values_of(per_output, all.part_of(per_output), 50)[2].second));
  for (const R2* const metric : {&r2, &per_output}) {
    const at::Tensor parts = all.rows(0, 7).part_of(*metric) + all.rows(7, 50).part_of(*metric);
    EXPECT_EQ(values_of(*metric, parts, 50)[0], values_of(*metric, all.part_of(*metric), 50)[0]);
  }
}

// Numbers of very different size, whose plain sum depends on the order.
TEST_P(MetricValues, AreBitIdenticalForUnevenErrors) {
  at::manual_seed(3);
  const at::Tensor errors = at::randn({1000}) * at::pow(10., at::rand({1000}) * 16 - 8);
  const MetricBatch all{on(errors), on(at::zeros({1000}))};
  const MetricBatch turned{on(errors.flip(0)), on(at::zeros({1000}))};
  EXPECT_NE(errors.square().sum().item<float>(), errors.flip(0).square().cumsum(0)[-1].item<float>());
  for (const std::string name : {"mse", "mae", "rmse"}) {
    const auto metric = shipped_metric(name);
    const double value = values_of(*metric, all.part_of(*metric), 1000)[0].second;
    const double backwards =
        values_of(*metric, turned.rows(0, 77).part_of(*metric) + turned.rows(77, 1000).part_of(*metric),
                  1000)[0]
            .second;
    EXPECT_EQ(value, backwards) << name;
    const at::Tensor exact =
        name == "mae" ? errors.to(at::kDouble).abs().mean() : errors.to(at::kDouble).square().mean();
    // Each sample's error is rounded to float32.
    EXPECT_NEAR((name == "rmse" ? value * value : value) / exact.item<double>(), 1, 1e-7) << name;
  }
}

TEST_P(MetricValues, UseTheLargestProbabilityOfSoftLabels) {
  const at::Tensor outputs = at::tensor({2.F, 1.F, 0.F, 0.F, 3.F, 1.F}).view({2, 3});
  const at::Tensor soft = at::tensor({0.1F, 0.7F, 0.2F, 0.F, 1.F, 0.F}).view({2, 3});
  const auto f1 = shipped_metric("f1_micro");
  EXPECT_EQ(values_of(*f1, f1->update(on(outputs), on(soft)), 2)[0].second, 0.5);
}

TEST_P(MetricValues, AreNaNWithoutSamples) {
  const at::Tensor outputs = on(at::randn({3, 4})), ignored = on(at::full({3}, -100, at::kLong));
  for (const std::string name :
       {"f1_macro", "precision_micro", "recall_weighted", "top2", "accuracy", "auroc", "perplexity"}) {
    const auto metric = shipped_metric(name);
    EXPECT_TRUE(std::isnan(values_of(*metric, metric->update(outputs, ignored), 3)[0].second)) << name;
  }
  const auto r2 = shipped_metric("r2");
  EXPECT_TRUE(std::isnan(values_of(*r2, r2->update(on(at::ones({1})), on(at::ones({1}))), 1)[0].second));
  const auto mse = shipped_metric("mse");
  EXPECT_TRUE(
      std::isnan(values_of(*mse, mse->update(on(at::full({2}, INFINITY)), on(at::ones({2}))), 2)[0].second));
}

// Whose spread is nothing but rounding: as scikit-learn has it, 1 for outputs without an error, else 0.
TEST_P(MetricValues, HandleConstantLabels) {
  at::manual_seed(9);
  const auto r2 = shipped_metric("r2");
  for (const double label : {0.1, 1. / 3, 2000.1, -7e-5}) {
    const at::Tensor labels = on(at::full({77}, label, at::kFloat)), weights = on(at::rand({77}));
    const auto score = [&](const at::Tensor& outputs) {
      return values_of(*r2, r2->update_weighted(outputs, labels, weights), 77)[0].second;
    };
    EXPECT_EQ(score(labels), 1) << label;
    EXPECT_EQ(score(labels + 1), 0) << label;
  }
}

// Labels whose mean is up to 10¹¹ times their deviation. Their distance from the mean is exact, so the score
// is that of labels and outputs around 0.
TEST_P(MetricValues, OfR2DoNotDependOnTheMeanOfTheLabels) {
  at::manual_seed(4);
  const at::Tensor weights = on(at::rand({500}, at::kDouble));
  const at::Tensor labels = at::randint(-8, 9, {500}, at::kDouble),
                   outputs = labels + at::randint(-2, 3, {500}, at::kDouble);
  const auto r2 = shipped_metric("r2");
  for (const at::Tensor& weight : {at::Tensor(), weights})
    for (const double mean : {0., 1e4, 3e7, 7e9, 1e12}) {
      const double score =
          values_of(*r2, r2->update_weighted(on(outputs + mean), on(labels + mean), weight), 500)[0].second;
      // Rounding Σ y² ≈ 500 · 1e24 to 104 bits, relative to a spread of 12,000.
      const double at_zero =
          values_of(*r2, r2->update_weighted(on(outputs), on(labels), weight), 500)[0].second;
      EXPECT_NEAR(score, at_zero, 1e-8) << mean;
    }
}

// Rows with NaN are wrong answers, of the labels 0 and 2. argmax would take the first NaN for the largest.
TEST_P(MetricValues, GiveRowsWithNaNNoClass) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const at::Tensor outputs = on(at::tensor({nan, 1., 2., 0., 3., 1., 0., 1., nan, 5., 1., 2.}).view({4, 3})),
                   labels = on(at::tensor({0, 1, 2, 0}, at::kLong));
  const auto value_of = [&](const std::string& name) {
    const auto metric = shipped_metric(name);
    EXPECT_EQ(metric->num_without_class(outputs, labels).item<double>(), 2) << name;
    return values_of(*metric, metric->update(outputs, labels), 4);
  };
  EXPECT_EQ(value_of("accuracy")[0].second, 0.5);
  EXPECT_EQ(values_of(kindling::Accuracy(), kindling::Accuracy().update(outputs, labels), 4)[0].second, 0.5);
  EXPECT_EQ(kindling::accuracy(outputs, labels).item<double>(), 0.5);
  EXPECT_EQ(value_of("top2")[0].second, 0.5);
  EXPECT_EQ(value_of("top3")[0].second, 0.5);
  EXPECT_EQ(value_of("recall_micro")[0].second, 0.5);
  EXPECT_EQ(value_of("precision_micro")[0].second, 1);
  const NamedValues recalls = value_of("recall_per_class");
  EXPECT_EQ(recalls[0].second, 0.5);
  EXPECT_EQ(recalls[1].second, 1);
  EXPECT_EQ(recalls[2].second, 0);
  const NamedValues cells = value_of("confusion_matrix");
  double num_predictions = 0;
  for (const auto& [name, cell] : cells) num_predictions += cell;
  EXPECT_EQ(num_predictions, 2);
  EXPECT_EQ(cells[0].second, 1);
  EXPECT_EQ(cells[4].second, 1);
  // One logit: a NaN is not a prediction of class 0.
  const at::Tensor logits = on(at::tensor({nan, -1., 2.})), zeros = on(at::zeros({3}, at::kLong));
  const auto recall = shipped_metric("recall_micro");
  EXPECT_EQ(values_of(*recall, recall->update(logits, zeros), 3)[0].second, 1. / 3);
  EXPECT_EQ(recall->num_without_class(logits, zeros).item<double>(), 1);
}

// sklearn.metrics.top_k_accuracy_score(labels, outputs, k=k, labels=range(4)) returns these values.
TEST_P(MetricValues, OfTopKPreferTheHigherClassOfEqualOutputs) {
  const at::Tensor outputs = on(at::tensor({1., 1., 1., 1., 0., 2., 2., 1., 3., 0., 0., 0.}).view({3, 4}));
  const auto value_of = [&](std::int64_t k, const std::vector<std::int64_t>& labels) {
    const auto metric = shipped_metric("top" + std::to_string(k));
    return values_of(*metric, metric->update(outputs, on(at::tensor(labels, at::kLong))), 3)[0].second;
  };
  EXPECT_EQ(value_of(1, {3, 2, 0}), 1);
  EXPECT_EQ(value_of(1, {0, 1, 1}), 0);
  EXPECT_EQ(value_of(2, {2, 1, 3}), 1);
  EXPECT_EQ(value_of(2, {1, 3, 2}), 0);
  EXPECT_EQ(value_of(3, {1, 3, 2}), 1);
  EXPECT_EQ(value_of(3, {0, 0, 1}), 0);
}

// Known only when the numbers are on the host.
TEST_P(MetricValues, RejectLabelsThatAreNotClasses) {
  const at::Tensor outputs = on(at::randn({4, 3}));
  for (const std::string name : {"f1_macro", "confusion_matrix", "top2", "accuracy", "auroc", "perplexity"}) {
    const auto metric = shipped_metric(name);
    for (const std::int64_t wrong : {3, -1, 1000}) {
      const at::Tensor part =
          metric->update(outputs, on(at::tensor({0, 1, static_cast<int>(wrong), -100}, at::kLong)));
      const std::string text = error_text<DataError>([&] { values_of(*metric, part, 4); });
      EXPECT_NE(
          text.find("a label in the epoch is not a class of the outputs; expected: class numbers from 0 to"),
          std::string::npos)
          << name << text;
      const at::Tensor sums = (metric->keeps_samples() ? metric->sums_of(part) : part).cpu();
      EXPECT_THROW(
          metric->compute({sums.const_data_ptr<double>(), static_cast<std::size_t>(sums.numel())}, 4),
          DataError);
    }
  }
  // A regression's labels, and those of several classes at once.
  const auto f1 = shipped_metric("f1");
  const at::Tensor of_regression =
      f1->update(on(at::randn({2, 1})), on(at::tensor({0.5F, 1.F}).view({2, 1})));
  EXPECT_THROW(values_of(*f1, of_regression, 2), DataError);
  const auto macro = shipped_metric("f1_macro");
  const at::Tensor of_several =
      macro->update(on(at::randn({1, 3})), on(at::tensor({1.F, 1.F, 0.F}).view({1, 3})));
  EXPECT_THROW(values_of(*macro, of_several, 1), DataError);
}

TEST_P(MetricValues, RejectShapesThatDoNotMatch) {
  const auto text_of = [&](const std::string& name, const at::Tensor& outputs, const at::Tensor& labels,
                           const at::Tensor& weights = {}) {
    const auto metric = shipped_metric(name);
    return error_text<DataError>([&] {
      MetricBatch{on(outputs), on(labels), weights.defined() ? on(weights) : weights}.part_of(*metric);
    });
  };
  const auto expect = [](const std::string& text, const std::string& wanted) {
    EXPECT_NE(text.find(wanted), std::string::npos) << text;
  };
  const at::Tensor outputs = at::zeros({4, 3}), labels = at::zeros({4}, at::kLong);
  for (const std::string name : {"f1_macro", "confusion_matrix", "top2", "auroc"}) {
    expect(text_of(name, outputs, at::zeros({4})),
           "the labels are Float [4], the outputs Float [4, 3]; expected: class numbers Long [4] or class "
           "probabilities");
    expect(text_of(name, outputs, labels.unsqueeze(1)), "the labels are Long [4, 1]");
    expect(text_of(name, outputs, at::zeros({5}, at::kLong)), "the labels are Long [5]");
    expect(text_of(name, labels, labels), "the outputs are Long [4]; expected: logits");
    expect(text_of(name, outputs, labels, at::ones({3})),
           "the weights are Float [3]; expected: one per sample, or [4]");
  }
  expect(text_of("top5", outputs, labels), "k is 5, but there are outputs for only 3 classes");
  expect(text_of("top3", at::zeros({4}), labels), "k is 3, but there are outputs for only 2 classes");
  expect(text_of("f1", outputs, labels), "the outputs have 3 classes; expected: two");
  expect(text_of("perplexity", at::zeros({4, 7, 3}), at::zeros({4, 7}, at::kLong)),
         "set classes_last for outputs [batch, tokens, classes]");
  expect(text_of("perplexity", outputs, outputs), "class numbers [batch, …]");
  for (const std::string name : {"mse", "r2"}) {
    expect(text_of(name, at::zeros({4, 1}), at::zeros({4})),
           "the labels are Float [4], the outputs Float [4, 1]");
    expect(text_of(name, labels, labels), "the outputs floating-point");
    expect(text_of(name, outputs, outputs, at::ones({4, 3})), "expected: one per sample");
  }
}

// Four equally probable classes, and the bits of outputs whose classes stand second.
TEST_P(MetricValues, OfPerplexityTakeClassesInTheLastPlace) {
  const Perplexity last({.classes_last = true}), second;
  const at::Tensor labels = at::arange(6, at::kLong).remainder(4).view({2, 3}).to(device_);
  const at::Tensor zeros = at::zeros({2, 3, 4}).to(device_);
  // −log(1/4) is a float32.
  EXPECT_NEAR(values_of(last, last.update(zeros, labels), 2)[0].second, 4, 4e-7);
  const at::Tensor outputs = at::arange(24, at::kFloat).sin().view({2, 3, 4}).to(device_);
  EXPECT_TRUE(at::equal(last.update(outputs, labels), second.update(outputs.transpose(1, 2), labels)));
  EXPECT_TRUE(at::equal(last.update(outputs[0], labels[0]), second.update(outputs[0], labels[0])));
  const std::string text = error_text<DataError>([&] { last.update(outputs.transpose(1, 2), labels); });
  EXPECT_NE(text.find("expected: outputs [batch, …, classes] and class numbers [batch, …]"),
            std::string::npos)
      << text;
}

TEST(MetricOptions, AreChecked) {
  const std::string text = error_text<ConfigError>([] { ClassScore({.average = "makro"}); });
  EXPECT_NE(text.find("macro"), std::string::npos) << text;
  EXPECT_THROW(ClassScore({.score = "accuracy"}), ConfigError);
  EXPECT_THROW(TopK({.k = 0}), ConfigError);
  EXPECT_THROW(Auroc({.num_thresholds = 1}), ConfigError);
  EXPECT_THROW(MeanError({.error = "mape"}), ConfigError);
  EXPECT_THROW(R2({.average = "macro"}), ConfigError);
}

class WeightedSum : public Metric {
 public:
  at::Tensor update_weighted(const at::Tensor& outputs, const at::Tensor&,
                             const at::Tensor& weights) const override {
    return weights.defined() ? outputs.mul(weights).sum() : outputs.sum();
  }
  double compute(std::span<const double> sums, double) const override { return sums[0]; }
};

TEST(Metric, UpdateIsUpdateWeightedWithoutWeightsByDefault) {
  const at::Tensor outputs = at::tensor({1., 2.});
  EXPECT_EQ(WeightedSum().update(outputs, {}).item<double>(), 3);
  EXPECT_EQ(WeightedSum().update_weighted(outputs, {}, at::tensor({1., 10.})).item<double>(), 21);
}

class NoUpdate : public Metric {
 public:
  double compute(std::span<const double>, double) const override { return 0; }
};

TEST(Metric, WithoutAnUpdateIsAnError) {
  EXPECT_EQ(
      error_text<DataError>([] { NoUpdate().update({}, {}); }),
      "measure: the metric overrides neither update() nor update_weighted(); override Metric::update()");
}

}  // namespace
}  // namespace kindling
