#include "kindling/metrics/accuracy.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "kindling/base/error.h"
#include "kindling/metrics/class_score.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

class Accuracy : public OnDevice {};
KINDLING_RUN_ON_DEVICES(Accuracy);

TEST_P(Accuracy, IsTheFractionOfCorrectPredictions) {
  const at::Tensor outputs =
      at::tensor({0.1f, 0.9f, 0.f, 2.f, 1.f, -1.f, -3.f, -2.f, -1.f, 0.f, 1.f, 5.f}).view({4, 3}).to(device_);
  const at::Tensor share = accuracy(outputs, at::tensor({1, 0, 2, 1}, at::kLong).to(device_));
  EXPECT_EQ(share.device(), device_);
  EXPECT_TRUE(same(share, at::scalar_tensor(0.75, at::kFloat)));
}

TEST_P(Accuracy, RefusesLabelsThatWouldBeBroadcast) {
  const at::Tensor outputs = at::zeros({4, 3}, at::device(device_));
  const auto labels = at::zeros({4, 1}, at::device(device_).dtype(at::kLong));
  const std::string text = error_text<DataError>([&] { accuracy(outputs, labels); });
  EXPECT_EQ(
      text.find("accuracy: the labels are Long [4, 1], the outputs Float [4, 3]; expected: class numbers "
                "Long [4]"),
      0U)
      << text;
  EXPECT_THROW(kindling::Accuracy().update(outputs, labels), DataError);
}

TEST_P(Accuracy, OfProbabilitiesCountsTheLargest) {
  const at::Tensor outputs = at::tensor({0.f, 1.f, 5.f, 2.f}).view({2, 2}).to(device_);
  const at::Tensor shares = at::tensor({0.25f, 0.75f, 0.f, 1.f}).view({2, 2}).to(device_);
  EXPECT_EQ(kindling::Accuracy().update(outputs, shares).item<double>(), 1);
}

TEST_P(Accuracy, TakesNoPartInGradients) {
  const at::Tensor outputs = at::rand({2, 3}, at::device(device_)).requires_grad_();
  EXPECT_FALSE(accuracy(outputs, at::zeros({2}, at::device(device_).dtype(at::kLong))).requires_grad());
}

// Two images of two pixels each, of which one, then two are right.
TEST(AccuracyOfPixels, IsTheFractionOfAllPixels) {
  const at::Tensor outputs = at::tensor({1.F, 1.F, 0.F, 0.F, 0.F, 1.F, 1.F, 0.F}).view({2, 2, 2});
  const at::Tensor labels = at::tensor({0, 1, 1, 0}, at::kLong).view({2, 2});
  const kindling::Accuracy accuracy;
  EXPECT_EQ(accuracy.num_answers(outputs, labels), 4);
  const double sum = accuracy.update(outputs, labels).item<double>();
  EXPECT_EQ(sum, 3);
  EXPECT_EQ(accuracy.compute({&sum, 1}, 4), 0.75);
}

TEST(AccuracyOfPixels, CountsSamplesWhereEachHasOneAnswer) {
  const kindling::Accuracy accuracy;
  EXPECT_EQ(accuracy.num_answers(at::zeros({4, 3}), at::zeros({4}, at::kLong)), std::nullopt);
  EXPECT_EQ(accuracy.num_answers(at::zeros({4, 3, 1}), at::zeros({4, 1}, at::kLong)), std::nullopt);
}

constexpr const char* kNoProbabilities =
    "accuracy: labels of the outputs' shape do not add up to 1 over the classes; expected: class numbers, or "
    "class probabilities; if each class has a yes or no of its own (multi-label), set multi_label = true";

// Two of three classes are true of the first sample.
TEST(AccuracyOfSeveralLabels, IsRefusedAtTheEndOfTheEpoch) {
  const at::Tensor outputs = at::eye(2, 3), labels = at::tensor({1.F, 1.F, 0.F, 0.F, 1.F, 0.F}).view({2, 3});
  const kindling::Accuracy accuracy;
  const double sum = accuracy.update(outputs, labels).item<double>();
  EXPECT_EQ(error_text<DataError>([&] { (void)accuracy.compute({&sum, 1}, 2); }), kNoProbabilities);
  EXPECT_TRUE(std::isnan(kindling::accuracy(outputs, labels).item<double>()));
}

TEST(AccuracyOfSeveralLabels, IsRefusedWithWeightsToo) {
  const at::Tensor outputs = at::eye(2, 3), labels = at::tensor({1.F, 1.F, 0.F, 0.F, 1.F, 0.F}).view({2, 3});
  const kindling::Accuracy accuracy;
  const at::Tensor sums = accuracy.update_weighted(outputs, labels, at::ones({2})).contiguous();
  const std::span<const double> numbers(sums.const_data_ptr<double>(),
                                        static_cast<std::size_t>(sums.numel()));
  EXPECT_EQ(error_text<DataError>([&] { (void)accuracy.compute(numbers, 2); }), kNoProbabilities);
}

// scikit-learn 1.7's numbers for a label matrix, zero_division = 0; the fourth class neither occurs nor is
// said. The macro means of IoU (its jaccard_score) and Dice skip it: labels=[0, 1, 2].
TEST(AccuracyOfSeveralLabels, AndScoresAreThoseOfScikitLearn) {
  const at::Tensor i = at::arange(28, at::kDouble).view({7, 4});
  at::Tensor outputs = (i * 1.7).sin(), labels = (i * 7).remainder(5).lt(2).to(at::kLong);
  outputs.select(1, 3).fill_(-1);
  labels.select(1, 3).fill_(0);
  const auto value = [&](const Metric& metric, const at::Tensor& of_labels) {
    const at::Tensor sums = metric.update(outputs, of_labels).contiguous();
    return metric.compute({sums.const_data_ptr<double>(), static_cast<std::size_t>(sums.numel())}, 7);
  };
  for (const at::ScalarType type : {at::kLong, at::kByte, at::kFloat}) {
    const at::Tensor typed = labels.to(type);
    EXPECT_NEAR(value(kindling::Accuracy({.multi_label = true}), typed), 0.5714285714285714, 1e-15);
    const std::map<std::string, std::array<double, 5>> of_averages{
        {"macro", {0.19444444444444442, 0.16666666666666666, 0.25, 0.1619047619047619, 0.25925925925925924}},
        {"micro", {0.3333333333333333, 0.3, 0.375, 0.2, 0.3333333333333333}},
        {"weighted", {0.29166666666666663, 0.25, 0.375, 0.18214285714285716, 0.29166666666666663}}};
    for (const auto& [average, values] : of_averages)
      for (std::size_t k = 0; k < 5; ++k) {
        const std::string score = std::array{"f1", "precision", "recall", "iou", "dice"}[k];
        EXPECT_NEAR(value(ClassScore({.score = score, .average = average, .multi_label = true}), typed),
                    values[k], 1e-15)
            << score << " " << average;
      }
  }
  labels.slice(0, 5).fill_(-1);
  EXPECT_NEAR(value(kindling::Accuracy({.ignore_index = -1, .multi_label = true}), labels),
              outputs.slice(0, 0, 5).gt(0).eq(labels.slice(0, 0, 5)).to(at::kDouble).mean().item<double>(),
              1e-15);
  labels[0][0] = 2;
  EXPECT_THROW(value(kindling::Accuracy({.multi_label = true}), labels), DataError);
  EXPECT_THROW(ClassScore({.average = "binary", .multi_label = true}), ConfigError);
}

double weighted_share(const kindling::Accuracy& metric, const at::Tensor& labels, const at::Tensor& weights) {
  const at::Tensor outputs = at::eye(4);  // says 0, 1, 2, 3
  const at::Tensor sums = metric.update_weighted(outputs, labels, weights).contiguous();
  return metric.compute({sums.const_data_ptr<double>(), static_cast<std::size_t>(sums.numel())}, 4);
}

TEST(WeightedAccuracy, IsTheFractionOfTheWeightOfCorrectPredictions) {
  const at::Tensor weights = at::tensor({0.25F, 1.F, 2.F, 0.75F});
  const kindling::Accuracy plain;
  EXPECT_EQ(weighted_share(plain, at::tensor({0, 0, 2, 0}, at::kLong), weights), 2.25 / 4);
  // Another label than -100 that is not a class counts as a wrong answer, unless one is ignored.
  EXPECT_EQ(weighted_share(plain, at::tensor({0, -100, 2, 9}, at::kLong), weights), 2.25 / 3);
  const kindling::Accuracy without(AccuracyOptions{.ignore_index = 9});
  EXPECT_EQ(weighted_share(without, at::tensor({0, 0, 2, 9}, at::kLong), weights), 2.25 / 3.25);
  EXPECT_THROW(weighted_share(without, at::tensor({0, -100, 2, 9}, at::kLong), weights), DataError);
}

}  // namespace
}  // namespace kindling
