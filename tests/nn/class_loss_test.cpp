// The losses of a classifier. LibTorch's own operators are the twins of PyTorch's functions; the focal
// numbers come from the formulas of Lin et al. (2017) and of torchvision's sigmoid_focal_loss, evaluated in
// Python in float64.
#include "kindling/nn/class_loss.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "kindling/base/error.h"
#include "kindling/nn/classifier.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

struct LossAndGradient {
  at::Tensor loss, gradient;
};

template <class Call>
LossAndGradient differentiated(const at::Tensor& logits, const Call& call) {
  const at::Tensor x = logits.detach().clone().requires_grad_();
  const at::Tensor loss = call(x);
  loss.backward();
  return {loss.detach(), x.grad()};
}

ClassLoss loss_with(const ClassLossOptions& options, const at::Tensor& weights = {}) {
  ClassLoss loss;
  loss.set_options(options);
  loss.set_class_weights(weights);
  return loss;
}

LossAndGradient of(ClassLoss loss, const at::Tensor& logits, const at::Tensor& labels) {
  return differentiated(logits, [&](const at::Tensor& x) { return loss("test", x, labels).loss; });
}

// sin(0 … 11) as [4, 3], and labels of which the last is ignored.
at::Tensor sines() { return at::arange(12, at::kDouble).sin().view({4, 3}); }
at::Tensor three_labels() { return at::tensor({0, 2, 1, -100}, at::kLong); }
at::Tensor weights_of_three() { return at::tensor({1., 2., 0.5}, at::kDouble); }

TEST(ClassLoss, DividesASmoothedLossByTheWeightsOfTheTrueClasses) {
  ClassLoss loss = loss_with({.label_smoothing = 0.1}, weights_of_three());
  const WeightedLoss of_batch = loss("test", sines(), three_labels());
  EXPECT_NEAR(of_batch.loss.item<double>(), 1.3123434431363683, 1e-14);
  EXPECT_EQ(of_batch.weight.item<double>(), 3.5);
}

TEST(ClassLoss, IsThatOfPyTorchForRandomOptions) {
  std::mt19937 random(5);
  const auto pick = [&](std::int64_t below) { return static_cast<std::int64_t>(random()) % below; };
  for (int i = 0; i < 60; ++i) {
    at::manual_seed(static_cast<std::uint64_t>(i));
    const std::int64_t classes = 2 + pick(4), ignored = pick(2) == 0 ? -100 : 255;
    std::vector<std::int64_t> shape{5};
    for (std::int64_t left = pick(4); left > 0; --left) shape.push_back(1 + pick(3));
    std::vector<std::int64_t> of_logits = shape;
    of_logits.insert(of_logits.begin() + 1, classes);
    const at::Tensor logits = at::randn(of_logits, at::kDouble);
    const at::Tensor labels =
        at::randint(classes, shape, at::kLong).masked_fill(at::rand(shape).lt(0.3), ignored);
    labels.flatten()[0] = 0;
    const ClassLossOptions options{.label_smoothing = 0.1 * static_cast<double>(pick(3)),
                                   .ignore_index = ignored};
    const at::Tensor weights = pick(2) == 0 ? at::Tensor() : at::rand({classes}, at::kDouble) + 0.1;
    SCOPED_TRACE(testing::Message() << "setting " << i);
    const LossAndGradient own = of(loss_with(options, weights), logits, labels);
    const LossAndGradient right = differentiated(logits, [&](const at::Tensor& x) {
      return at::cross_entropy_loss(x, labels, weights.defined() ? std::optional(weights) : std::nullopt,
                                    at::Reduction::Mean, ignored, options.label_smoothing);
    });
    EXPECT_TRUE(close(own.loss, right.loss, 1e-14));
    EXPECT_TRUE(close(own.gradient, right.gradient, 1e-14));
  }
}

TEST(ClassLoss, WeighsHardSamplesMoreWithAFocalExponent) {
  struct Case {
    double gamma, smoothing;
    at::Tensor weights;
    double loss;
    std::vector<double> gradient;  // of the first row
  };
  for (const Case& one :
       {Case{2, 0, {}, 0.9024868684987535, {-0.32737036969153605, 0.1581362201333593, 0.16923414955817676}},
        Case{2,
             0,
             weights_of_three(),
             0.7393441879713709,
             {-0.2806031740213166, 0.13554533154287943, 0.14505784247843723}},
        Case{0.5,
             0.1,
             weights_of_three(),
             1.126357074231456,
             {-0.2334104264792007, 0.10508332232116908, 0.12832710415803164}}}) {
    const LossAndGradient own =
        of(loss_with({.label_smoothing = one.smoothing, .focal_gamma = one.gamma}, one.weights), sines(),
           three_labels());
    EXPECT_NEAR(own.loss.item<double>(), one.loss, 1e-14);
    EXPECT_TRUE(close(own.gradient[0], at::tensor(one.gradient, at::kDouble), 1e-14));
    EXPECT_TRUE(same(own.gradient[3], at::zeros({3}, at::kDouble)));
  }
}

// Below γ = 1 the derivative of (1 − p)^γ is infinite where p is 1.
TEST(ClassLoss, HasAFiniteFocalGradientForCertainSamples) {
  const at::Tensor logits = at::tensor({100.f, -100.f, -100.f, 100.f}).view({2, 2});
  const at::Tensor numbers = at::tensor({0, 0}, at::kLong);
  const at::Tensor each = at::tensor({1.f, 0.f, 0.f, 0.f}).view({2, 2});
  for (const double gamma : {0.5, 2.}) {
    EXPECT_TRUE(
        of(loss_with({.focal_gamma = gamma}), logits, numbers).gradient.isfinite().all().item<bool>());
    EXPECT_TRUE(of(loss_with({.focal_gamma = gamma, .multi_label = true}), logits, each)
                    .gradient.isfinite()
                    .all()
                    .item<bool>());
  }
}

TEST(ClassLoss, IsAMeanOverEachClassWithSeveralLabels) {
  const at::Tensor labels = at::arange(12).remainder(3).eq(0).view({4, 3});
  const auto value = [&](const ClassLossOptions& options, const at::Tensor& of_labels) {
    return of(loss_with(options), sines(), of_labels).loss.item<double>();
  };
  const std::vector<double> pos_weight{3, 1, 0.5};
  for (const at::ScalarType type : {at::kBool, at::kLong, at::kDouble}) {
    const at::Tensor typed = labels.to(type);
    EXPECT_NEAR(value({.multi_label = true, .pos_weight = pos_weight}, typed), 1.192904438086959, 1e-14);
    EXPECT_NEAR(value({.focal_gamma = 2, .multi_label = true}, typed), 0.2658737365620954, 1e-14);
    EXPECT_NEAR(value({.focal_gamma = 2, .multi_label = true, .pos_weight = pos_weight}, typed),
                0.3762331159651193, 1e-14);
  }
  ClassLoss loss = loss_with({.ignore_index = -1, .multi_label = true});
  const at::Tensor some = labels.to(at::kLong).masked_fill(at::arange(12).view({4, 3}).ge(5), -1);
  const WeightedLoss of_some = loss("test", sines(), some);
  EXPECT_EQ(of_some.weight.item<std::int64_t>(), 5);
  EXPECT_NEAR(of_some.loss.item<double>(),
              at::binary_cross_entropy_with_logits(sines().flatten().slice(0, 0, 5),
                                                   labels.flatten().slice(0, 0, 5).to(at::kDouble))
                  .item<double>(),
              1e-14);
}

// PyTorch's autocast computes these losses in float32.
TEST(ClassLoss, DoesNotRoundLabelsBetweenZeroAndOne) {
  const at::Tensor logits = at::full({1, 1}, 3, at::kBFloat16), labels = at::full({1, 1}, 0.95F);
  ClassLoss loss = loss_with({.multi_label = true});
  EXPECT_NEAR(loss("test", logits, labels).loss.item<double>(),
              at::binary_cross_entropy_with_logits(logits.to(at::kFloat), labels).item<double>(), 1e-6);
}

TEST(ClassLoss, GivesExcludedClassesNoFocalGradient) {
  const at::Tensor logits = at::tensor({1.f, 2.f, -std::numeric_limits<float>::infinity()}).view({1, 3});
  const at::Tensor gradient = of(loss_with({.focal_gamma = 2}), logits, at::zeros({1}, at::kLong)).gradient;
  EXPECT_TRUE(gradient.isfinite().all().item<bool>()) << gradient;
  EXPECT_EQ(gradient[0][2].item<double>(), 0);
}

TEST(ClassLoss, WeighsSeveralLabelsOfManyPositionsByTheirNumber) {
  ClassLoss loss = loss_with({.multi_label = true});
  EXPECT_EQ(loss("test", at::zeros({4, 3, 2, 5}), at::zeros({4, 3, 2, 5})).weight.item<double>(), 120);
  EXPECT_FALSE(loss("test", at::zeros({4, 3}), at::zeros({4, 3})).weight.defined());
}

TEST(ClassLoss, RefusesOptionsThatContradictEachOther) {
  const auto error_of = [](const ClassLossOptions& options, const at::Tensor& weights = {}) -> std::string {
    try {
      loss_with(options, weights);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(error_of({.label_smoothing = 0.1, .multi_label = true}).find("together with multi_label"),
            std::string::npos);
  EXPECT_NE(error_of({.pos_weight = {2}}).find("pos_weight: it is set"), std::string::npos);
  EXPECT_NE(error_of({.multi_label = true}, weights_of_three()).find("expected: pos_weight"),
            std::string::npos);
  // The smoothing of a sample with the weight 0 would count with no weight to divide it by.
  EXPECT_NE(error_of({.label_smoothing = 0.1}, at::tensor({1., 0., 1.}, at::kDouble))
                .find("class 1 has the weight 0"),
            std::string::npos);
  EXPECT_NE(error_of({.label_smoothing = 1}).find("label_smoothing"), std::string::npos);
  EXPECT_NE(error_of({.focal_gamma = -1}).find("focal_gamma"), std::string::npos);
}

TEST(ClassLoss, RefusesLabelsThatDoNotFit) {
  ClassLoss loss = loss_with({.multi_label = true, .pos_weight = {1, 2}});
  EXPECT_THROW(loss("test", sines(), three_labels()), DataError);
  EXPECT_THROW(loss("test", sines(), at::zeros({4, 3})), ConfigError);  // two weights for three classes
}

// So that metrics need not look for it once more.
TEST(ClassLoss, IsNanWhereAnOutputIsAlsoUnderAWeightOfZero) {
  const at::Tensor weights = at::tensor({1., 0., 2.}, at::kDouble);
  at::Tensor outputs = at::randn({3, 3});
  outputs[1][2] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor numbers = at::arange(3, at::kLong), probabilities = at::eye(3);
  for (const ClassLossOptions& options : {ClassLossOptions{}, ClassLossOptions{.focal_gamma = 2}})
    for (const at::Tensor& labels : {numbers, probabilities})
      EXPECT_TRUE(at::isnan(of(loss_with(options, weights), outputs, labels).loss).item<bool>());
}

}  // namespace
}  // namespace kindling
