#include "kindling/training/validation_report.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/formats/npy.h"
#include "kindling/nn/classifier.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

constexpr float kNanLogit = std::numeric_limits<float>::quiet_NaN();

// Its outputs are its inputs.
class GivenLogits : public Classifier {
 public:
  at::Tensor forward(const at::Tensor& inputs) override { return inputs; }
};
class GivenNumbers : public Slope {
 public:
  at::Tensor forward(const at::Tensor& inputs) override { return inputs; }
  bool is_regressor() const override { return true; }
};

class NamedRows : public TensorData {
 public:
  using TensorData::TensorData;
  std::vector<std::string> class_names() override { return {"ant", "bee, wild", "cat"}; }
  SampleIds val_ids() override {
    return {.name = "row",
            .values = {"r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11"}};
  }
};

// From here on, expected numbers are those of scikit-learn 1.9 (confusion_matrix) and NumPy in float64.
at::Tensor twelve_logits() {
  return at::tensor({0.2F,  -0.2F, 1.0F,  0.2F,  -0.8F, 0.5F,  2.0F,  1.4F,  -1.1F, -1.9F, -0.9F, 0.1F,
                     -3.5F, -0.3F, -1.9F, -1.1F, -0.8F, -0.5F, 0.6F,  1.6F,  -0.2F, 2.0F,  -1.0F, 0.5F,
                     1.4F,  0.1F,  -1.1F, -1.4F, -0.7F, 0.3F,  -1.5F, -0.3F, -0.2F, 0.8F,  0.3F,  0.5F})
      .view({12, 3});
}
at::Tensor twelve_labels() { return at::tensor({1, 1, 2, 2, 0, 2, 1, 1, 2, 1, 0, 0}, at::kLong); }

NamedRows rows_with(const at::Tensor& outputs, const at::Tensor& labels, std::int64_t batch_size = 5) {
  return {{outputs, labels}, {outputs, labels}, {.batch_size = batch_size}};
}

class ValidationReports : public OnDevice {
 protected:
  template <class Model>
  ValidationReport report_of(DataModule& data, const ValidationReportOptions& options = {},
                             std::shared_ptr<Model> model = std::make_shared<Model>()) {
    Trainer trainer({.num_gpus = num_gpus_wanted()});
    return validation_report(trainer, model, data, options);
  }
  const Scratch scratch_;
};
KINDLING_RUN_ON_TRAINER_DEVICES(ValidationReports);

TEST_P(ValidationReports, CountsPredictionsOfEachClass) {
  for (const std::int64_t batch_size : {1, 5, 12}) {
    NamedRows data = rows_with(twelve_logits(), twelve_labels(), batch_size);
    const ValidationReport report = report_of<GivenLogits>(data);
    EXPECT_EQ(report.num_samples, 12);
    EXPECT_TRUE(
        same(report.confusion_matrix, at::tensor({1, 1, 1, 1, 1, 3, 2, 0, 2}, at::kLong).view({3, 3})));
  }
}

// Bins of NumPy in float64; scikit-learn's calibration_curve(n_bins = 15) has the same means for the bins
// that are not empty, and with them the formula of Guo et al. (2017) makes 0.3886885666696528.
TEST_P(ValidationReports, MeasuresTheCalibration) {
  const std::vector<std::int64_t> counts{0, 0, 0, 0, 0, 0, 3, 1, 1, 4, 0, 2, 1, 0, 0};
  const std::vector<double> confidences{0.44067805831936147, 0.4966846269673266, 0.5712577893518817,
                                        0.6474538006384319,  0.761906593121614,  0.8047261698777538},
      accuracies{2. / 3, 0, 0, 0.5, 0, 0};
  for (const std::int64_t batch_size : {1, 5, 12}) {
    NamedRows data = rows_with(twelve_logits(), twelve_labels(), batch_size);
    const ValidationReport report = report_of<GivenLogits>(data);
    ASSERT_EQ(report.calibration.size(), 15U);
    std::size_t filled = 0;
    for (std::size_t i = 0; i < 15; ++i) {
      const CalibrationBin& bin = report.calibration[i];
      EXPECT_EQ(bin.low, static_cast<double>(i) / 15);
      EXPECT_EQ(bin.num_labels, counts[i]) << i;
      EXPECT_EQ(std::isnan(bin.accuracy), counts[i] == 0);
      if (counts[i] == 0) continue;
      EXPECT_NEAR(bin.mean_confidence, confidences.at(filled), 1e-6);  // float32: an ulp of 0.8 is 6e-8
      EXPECT_EQ(bin.accuracy, accuracies.at(filled++));
    }
    EXPECT_NEAR(report.ece, 0.3886885666696528, 1e-6);
  }
}

// A bin has its upper edge: confidences of exactly 1/2 and 1 are in different ones of two.
TEST_P(ValidationReports, PutsAnEdgeIntoTheLowerBin) {
  NamedRows data = rows_with(at::tensor({0.F, 0.F, 1000.F, 0.F}).view({2, 2}), at::tensor({0, 1}, at::kLong));
  const ValidationReport report = report_of<GivenLogits>(data, {.num_bins = 2});
  EXPECT_EQ(report.calibration.at(0).num_labels, 1);
  EXPECT_EQ(report.calibration.at(1).num_labels, 1);
  EXPECT_EQ(report.ece, (0.5 + 1) / 2);
}

TEST_P(ValidationReports, ListsTheLargestLossesFirst) {
  NamedRows data = rows_with(twelve_logits(), twelve_labels());
  const ValidationReport report = report_of<GivenLogits>(data, {.num_worst = 4});
  ASSERT_EQ(report.worst.size(), 4U);
  const std::vector<std::int64_t> samples{2, 4, 7, 8}, labels{2, 0, 1, 2}, predicted{0, 1, 0, 0};
  const std::vector<double> losses{3.5661592881826647, 3.4172532091532815, 3.241311296657157,
                                   2.8035186088451156},
      confidences{0.627407352471375, 0.8047261698777538, 0.7855970345892759, 0.738216151653952};
  for (std::size_t i = 0; i < 4; ++i) {
    const WorstPrediction& worst = report.worst[i];
    EXPECT_EQ(worst.sample, samples[i]);
    EXPECT_EQ(worst.label, labels[i]);
    EXPECT_EQ(worst.predicted, predicted[i]);
    EXPECT_NEAR(worst.loss, losses[i], 1e-6);  // float32: an ulp of 3.6 is 2.4e-7
    EXPECT_NEAR(worst.probability, std::exp(-losses[i]), 1e-7);
    EXPECT_NEAR(worst.confidence, confidences[i], 1e-6);
  }
}

TEST_P(ValidationReports, KeepsTheOrderOfEqualLosses) {
  NamedRows data = rows_with(at::zeros({9, 3}), at::zeros({9}, at::kLong), 2);
  const ValidationReport report = report_of<GivenLogits>(data, {.num_worst = 3});
  ASSERT_EQ(report.worst.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(report.worst[i].sample, static_cast<std::int64_t>(i));
}

TEST_P(ValidationReports, SkipIgnoredLabelsAndPutNanFirst) {
  const at::Tensor logits = at::tensor({1.F, 0.F, 0.F, 1.F, kNanLogit, 0.F, 0.F, 5.F}).view({4, 2});
  NamedRows data = rows_with(logits, at::tensor({0, -100, 0, 0}, at::kLong), 3);
  const ValidationReport report = report_of<GivenLogits>(data);
  // The row of NaN has no class, as in ConfusionMatrix.
  EXPECT_TRUE(same(report.confusion_matrix, at::tensor({1, 1, 0, 0}, at::kLong).view({2, 2})));
  std::int64_t num_labels = 0;
  for (const CalibrationBin& bin : report.calibration) num_labels += bin.num_labels;
  EXPECT_EQ(num_labels, 2);
  ASSERT_EQ(report.worst.size(), 3U);
  EXPECT_EQ(report.worst[0].sample, 2);
  EXPECT_EQ(report.worst[0].predicted, -1);
  EXPECT_EQ(report.worst[1].sample, 3);
  EXPECT_EQ(report.worst[2].sample, 0);
}

TEST_P(ValidationReports, HaveNoMatrixOfTooManyClasses) {
  NamedRows data = rows_with(at::eye(41), at::arange(41, at::kLong));
  const ValidationReport report = report_of<GivenLogits>(data);
  EXPECT_FALSE(report.confusion_matrix.defined());
  EXPECT_EQ(report.worst.size(), 20U);
  EXPECT_EQ(report_of<GivenLogits>(data, {.max_classes = 41}).confusion_matrix.trace().item<std::int64_t>(),
            41);
}

TEST_P(ValidationReports, CountPixelsOfSegmentations) {
  // [batch, classes, width]: the second class is predicted where its plane is positive.
  const at::Tensor plane = at::tensor({1.F, -1.F, 1.F, 1.F}).view({2, 1, 2});
  NamedRows data =
      rows_with(at::cat({at::zeros_like(plane), plane}, 1), at::tensor({1, 1, 0, 1}, at::kLong).view({2, 2}));
  const ValidationReport report = report_of<GivenLogits>(data);
  EXPECT_TRUE(same(report.confusion_matrix, at::tensor({0, 1, 1, 2}, at::kLong).view({2, 2})));
  // Of both the mean of log(1 + exp(1)) and log(1 + exp(-1)).
  ASSERT_EQ(report.worst.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(report.worst[i].sample, static_cast<std::int64_t>(i));
    EXPECT_NEAR(report.worst[i].loss, 0.81326169, 1e-6);
    EXPECT_EQ(report.worst[i].error_rate, 0.5);
    EXPECT_EQ(report.worst[i].label, -1);
  }
  EXPECT_FALSE(report.worst_masks.defined());
}

TEST_P(ValidationReports, HaveTheMasksOfTheWorstSegmentations) {
  const at::Tensor plane = at::tensor({2.F, -1.F, 3.F, kNanLogit, 0.F, 0.F, -9.F, -9.F}).view({4, 1, 1, 2});
  NamedRows data = rows_with(at::cat({at::zeros_like(plane), plane}, 1),
                             at::tensor({1, -100, 0, 1, -100, -100, 0, 0}, at::kLong).view({4, 1, 2}), 2);
  const ValidationReport report = report_of<GivenLogits>(data);
  ASSERT_EQ(report.worst.size(), 3U);
  EXPECT_EQ(report.worst[0].sample, 1);
  EXPECT_TRUE(std::isnan(report.worst[0].loss));
  EXPECT_EQ(report.worst[0].error_rate, 1);
  EXPECT_EQ(report.worst[1].sample, 0);
  EXPECT_NEAR(report.worst[1].loss, 0.12692801, 1e-6);  // log(1 + exp(-2))
  EXPECT_EQ(report.worst[1].error_rate, 0);
  EXPECT_EQ(report.worst[2].sample, 3);
  EXPECT_TRUE(same(report.worst_masks,
                   at::tensor({0, 1, 1, 255, 1, 255, 1, 0, 0, 0, 0, 0}, at::kByte).view({3, 2, 1, 2})));

  const ValidationReport first = report_of<GivenLogits>(data, {.num_worst = 1});
  EXPECT_TRUE(same(first.worst_masks, report.worst_masks.narrow(0, 0, 1)));
  write_validation_report(first, scratch_.folder());
  EXPECT_EQ(read_file(scratch_ / "worst_predictions.csv", 1000), "sample,row,error_rate,loss\n1,r1,1,nan\n");
  EXPECT_EQ(read_npy(scratch_ / "worst_masks.npy").shape, (std::vector<std::int64_t>{1, 2, 1, 2}));

  // Every third pixel of 257.
  at::Tensor labels = at::zeros({1, 1, 257}, at::kLong);
  labels.select(2, 3).fill_(1);
  NamedRows wide = rows_with(at::zeros({1, 2, 1, 257}), labels);
  const at::Tensor reduced = report_of<GivenLogits>(wide).worst_masks;
  ASSERT_EQ(reduced.sizes(), (at::IntArrayRef{1, 2, 1, 86}));
  EXPECT_EQ(reduced[0][0].nonzero()[0][1].item<std::int64_t>(), 1);
  NamedRows many = rows_with(at::zeros({1, 256, 1, 2}), at::zeros({1, 1, 2}, at::kLong));
  EXPECT_FALSE(report_of<GivenLogits>(many).worst_masks.defined());
}

TEST_P(ValidationReports, AreEmptyForOtherModels) {
  NamedRows numbers = rows_with(at::rand({4, 2}), at::rand({4, 2}));
  EXPECT_TRUE(report_of<Slope>(numbers).is_empty());
}

TEST_P(ValidationReports, CountSeveralLabelsPerSample) {
  NamedRows data = rows_with(at::tensor({1.F, -1.F, 2.F, 3.F}).view({2, 2}),
                             at::tensor({1.F, 0.F, 0.F, 1.F}).view({2, 2}));
  const auto model = std::make_shared<GivenLogits>();
  model->set_loss_options({.multi_label = true});
  const ValidationReport report = report_of<GivenLogits>(data, {}, model);
  ASSERT_EQ(report.class_counts.size(), 2U);
  EXPECT_EQ(report.class_counts[0].num_predicted, 2);
  EXPECT_EQ(report.class_counts[0].num_both, 1);
  EXPECT_TRUE(report.worst.empty());
}

// Squared errors by hand: 0.25, 4, 0 for one target; (1 + 9) / 2 and (0 + 4) / 2 for two.
TEST_P(ValidationReports, RankRegressionsByTheirSquaredErrors) {
  NamedRows one =
      rows_with(at::tensor({1.5F, 2.F, -3.F}).unsqueeze(1), at::tensor({1.F, 4.F, -3.F}).unsqueeze(1), 2);
  const ValidationReport of_one = report_of<GivenNumbers>(one);
  ASSERT_EQ(of_one.worst.size(), 3U);
  EXPECT_EQ(of_one.worst[0].sample, 1);
  EXPECT_EQ(of_one.worst[0].loss, 4);
  EXPECT_EQ(of_one.worst[0].targets, std::vector<double>{4});
  EXPECT_EQ(of_one.worst[0].predictions, std::vector<double>{2});
  EXPECT_EQ(of_one.worst[1].loss, 0.25);
  EXPECT_FALSE(of_one.confusion_matrix.defined());
  NamedRows two =
      rows_with(at::tensor({1.F, 0.F, 5.F, 5.F}).view({2, 2}), at::tensor({0.F, 3.F, 5.F, 7.F}).view({2, 2}));
  const ValidationReport of_two = report_of<GivenNumbers>(two);
  ASSERT_EQ(of_two.worst.size(), 2U);
  EXPECT_EQ(of_two.worst[0].loss, 5);
  EXPECT_EQ(of_two.worst[1].loss, 2);
  EXPECT_EQ(of_two.worst[0].predictions, (std::vector<double>{1, 0}));
}

TEST_P(ValidationReports, HaveTheResidualsOfRegressions) {
  const at::Tensor targets = at::arange(10, at::kFloat).unsqueeze(1);
  for (const std::int64_t batch_size : {1, 3, 10}) {
    NamedRows data = rows_with(targets * 2, targets, batch_size);
    const Residuals all = report_of<GivenNumbers>(data, {.max_residuals = 10}).residuals;
    EXPECT_EQ(all.stride, 1);
    EXPECT_TRUE(same(all.samples, at::arange(10, at::kLong)));
    EXPECT_TRUE(same(all.targets, targets.to(at::kDouble)));
    EXPECT_TRUE(same(all.predictions, targets.to(at::kDouble) * 2));
    // Five and three of ten do not fit, and four are more than three.
    const Residuals some = report_of<GivenNumbers>(data, {.max_residuals = 3}).residuals;
    EXPECT_EQ(some.stride, 4);
    EXPECT_TRUE(same(some.samples, at::tensor({0, 4, 8}, at::kLong)));
    EXPECT_TRUE(same(some.predictions, at::tensor({0., 8., 16.}).unsqueeze(1)));
  }
  NamedRows pairs = rows_with(at::ones({6, 2}), at::zeros({6, 2}), 4);
  EXPECT_EQ(report_of<GivenNumbers>(pairs, {.max_residuals = 6}).residuals.targets.size(0), 3);
}

class IgnoringNumbers : public GivenNumbers, public ClassLossModel {
 public:
  IgnoringNumbers() { set_loss_options({.ignore_index = -9}); }
};

// Squared errors by hand: 4 of one target of the second sample, (1 + 9) / 2 of the third.
TEST_P(ValidationReports, SkipIgnoredTargetsOfRegressions) {
  NamedRows data = rows_with(at::tensor({0.F, 0.F, kNanLogit, 1.F, 1.F, 0.F}).view({3, 2}),
                             at::tensor({-9.F, -9.F, -9.F, 3.F, 0.F, 3.F}).view({3, 2}), 2);
  const ValidationReport report = report_of<IgnoringNumbers>(data);
  ASSERT_EQ(report.worst.size(), 2U);
  EXPECT_EQ(report.worst[0].sample, 2);
  EXPECT_EQ(report.worst[0].loss, 5);
  EXPECT_EQ(report.worst[1].sample, 1);
  EXPECT_EQ(report.worst[1].loss, 4);
  EXPECT_TRUE(std::isnan(report.worst[1].targets.at(0)));
  EXPECT_EQ(report.worst[1].targets.at(1), 3);
  EXPECT_TRUE(same(report.residuals.samples, at::tensor({1, 2}, at::kLong)));
  EXPECT_TRUE(same(report.residuals.predictions[1], at::tensor({1., 0.}, at::kDouble)));
  EXPECT_TRUE(std::isnan(report.residuals.targets[0][0].item<double>()));
  NamedRows none = rows_with(at::zeros({3, 1}), at::full({3, 1}, -9.));
  const ValidationReport empty = report_of<IgnoringNumbers>(none);
  EXPECT_TRUE(empty.is_empty());
  EXPECT_FALSE(empty.residuals.samples.defined());
}

// Squared errors by hand, of the cells of four samples: 0, -, 9, -; 36, -, 16, 4; none; -, -, 25, NaN.
TEST_P(ValidationReports, HaveTheErrorsOfEachCellOfAField) {
  const float nan = kNanLogit;
  const at::Tensor outputs = at::tensor(
                       {1.F, 2.F, 3.F, 4.F, 0.F, 0.F, 0.F, 0.F, 5.F, 5.F, 5.F, 5.F, 1.F, 1.F, 1.F, nan}),
                   targets = at::tensor(
                       {1.F, nan, 0.F, nan, 6.F, nan, 4.F, 2.F, nan, nan, nan, nan, nan, nan, 6.F, 0.F});
  const float infinity = std::numeric_limits<float>::infinity();
  const at::Tensor expected =
      at::tensor({std::sqrt(18.F), nan, static_cast<float>(std::sqrt(50. / 3)), infinity}).view({1, 2, 2});
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{4, 2, 2}, {4, 1, 2, 2}})
    for (const std::int64_t batch_size : {1, 3, 4}) {
      NamedRows data = rows_with(outputs.view(shape), targets.view(shape), batch_size);
      const ValidationReport report = report_of<GivenNumbers>(data);
      ASSERT_EQ(report.field_errors.scalar_type(), at::kFloat);
      EXPECT_TRUE(at::allclose(report.field_errors, expected, 0, 0, /*equal_nan=*/true))
          << report.field_errors;
      ASSERT_EQ(report.worst.size(), 3U);
      EXPECT_EQ(report.worst[0].sample, 3);
      EXPECT_TRUE(std::isnan(report.worst[0].loss));
      EXPECT_EQ(report.worst[1].sample, 1);
      EXPECT_DOUBLE_EQ(report.worst[1].loss, 56. / 3);
      EXPECT_EQ(report.worst[2].sample, 0);
      EXPECT_EQ(report.worst[2].loss, 4.5);
      EXPECT_FALSE(report.residuals.samples.defined());
    }
  NamedRows none = rows_with(outputs.view({4, 2, 2}), at::full({4, 2, 2}, nan));
  EXPECT_TRUE(report_of<GivenNumbers>(none).is_empty());
}

TEST_P(ValidationReports, HaveTheErrorsOfFieldsInAnyBatches) {
  const at::Tensor outputs = at::randn({7, 3, 5, 4}), noise = at::randn({7, 3, 5, 4}),
                   targets = at::where(noise.gt(1), at::full({}, kNanLogit), noise);
  const at::Tensor squares = outputs.to(at::kDouble).sub(targets.to(at::kDouble)).square(),
                   expected = squares.nanmean(0).sqrt().to(at::kFloat);
  for (const std::int64_t batch_size : {1, 3, 7}) {
    NamedRows data = rows_with(outputs, targets, batch_size);
    const at::Tensor errors = report_of<GivenNumbers>(data).field_errors;
    ASSERT_EQ(errors.sizes(), (at::IntArrayRef{3, 5, 4}));
    EXPECT_TRUE(at::allclose(errors, expected, 1.2e-7, 0, /*equal_nan=*/true));  // an ulp of float32
  }
}

template <std::int64_t Dims>
struct GivenFields : GivenNumbers {
  std::int64_t space_dims() const override { return Dims; }
};

TEST_P(ValidationReports, HaveTheErrorsOfFieldsOfTheModelsDimensions) {
  const auto errors_of = [&](auto model, const std::vector<std::int64_t>& shape) {
    const at::Tensor outputs = at::randn(shape);
    NamedRows data = rows_with(outputs, at::zeros_like(outputs), 3);
    const at::Tensor errors = report_of<typename decltype(model)::type>(data).field_errors;
    if (!errors.defined()) return std::vector<std::int64_t>{};
    const at::Tensor expected = outputs.to(at::kDouble).square().mean(0).sqrt().to(at::kFloat);
    EXPECT_TRUE(at::allclose(errors, expected.view(errors.sizes())));
    return errors.sizes().vec();
  };
  const std::type_identity<GivenFields<1>> line;
  const std::type_identity<GivenNumbers> plane;
  const std::type_identity<GivenFields<3>> space;
  using Sizes = std::vector<std::int64_t>;
  EXPECT_EQ(errors_of(line, {5, 70}), (Sizes{1, 1, 70}));
  EXPECT_EQ(errors_of(line, {5, 2, 7}), (Sizes{2, 1, 7}));
  EXPECT_EQ(errors_of(line, {5, 2, 7, 3}), Sizes{});
  EXPECT_EQ(errors_of(plane, {5, 70}), (Sizes{1, 1, 70}));
  EXPECT_EQ(errors_of(plane, {5, 4}), Sizes{});  // they have residuals
  EXPECT_EQ(errors_of(space, {5, 2, 7, 3}), Sizes{});
  EXPECT_EQ(errors_of(space, {5, 1, 2, 7, 3}), Sizes{});
}

// Samples of a batch are as wide as it has samples.
class VaryingWidths : public NamedRows {
 public:
  using NamedRows::NamedRows;
  Batch on_after_batch_transfer(Batch batch) override {
    for (at::Tensor& tensor : batch.tensors()) tensor = tensor.narrow(2, 0, tensor.size(0));
    return batch;
  }
};

TEST_P(ValidationReports, HaveNoErrorsOfCellsForVolumesAndSeveralSizes) {
  const at::Tensor numbers = at::arange(5 * 2 * 3, at::kFloat).view({5, 2, 3});
  const at::Tensor volumes = numbers.view({5, 1, 1, 2, 3});
  NamedRows of_volumes = rows_with(volumes, at::zeros_like(volumes), 3);
  const ValidationReport report = report_of<GivenNumbers>(of_volumes);
  EXPECT_FALSE(report.field_errors.defined());
  EXPECT_EQ(report.worst.size(), 5U);
  VaryingWidths varying({numbers, numbers}, {numbers, at::zeros_like(numbers)}, {.batch_size = 3});
  const ValidationReport of_varying = report_of<GivenNumbers>(varying);
  EXPECT_FALSE(of_varying.field_errors.defined());
  ASSERT_EQ(of_varying.worst.size(), 5U);
  EXPECT_EQ(of_varying.worst[0].sample, 4);  // (24² + 25² + 27² + 28²) / 4
  EXPECT_EQ(of_varying.worst[0].loss, 678.5);
}

// Its logits are the first pixels of the images, in units of 10.
class FirstPixels : public Classifier {
 public:
  at::Tensor forward(const at::Tensor& inputs) override {
    return inputs.flatten(1).narrow(1, 0, 2).to(at::kFloat) / 10;
  }
};

TEST_P(ValidationReports, HaveThePicturesOfTheWorstImages) {
  const at::Tensor images =
      at::tensor({90, 80, 0, 7, 100, 60, 1, 9, 70, 95, 2, 200}, at::kByte).view({3, 1, 2, 2});
  NamedRows data = rows_with(images, at::tensor({0, 1, 0}, at::kLong), 2);
  const ValidationReport report = report_of<FirstPixels>(data, {.num_worst = 2});
  ASSERT_EQ(report.worst.size(), 2U);
  EXPECT_EQ(report.worst[0].sample, 1);
  EXPECT_EQ(report.worst[1].sample, 2);
  EXPECT_TRUE(
      same(report.worst_pictures, at::tensor({100, 60, 1, 9, 70, 95, 2, 200}, at::kByte).view({2, 2, 2, 1})));
  // All 63 at most: four times as bright.
  NamedRows dark =
      rows_with(at::tensor({0, 63, 5, 1, 2, 3}, at::kByte).view({1, 3, 1, 2}), at::zeros({1}, at::kLong));
  EXPECT_TRUE(same(report_of<FirstPixels>(dark).worst_pictures,
                   at::tensor({0, 20, 8, 252, 4, 12}, at::kByte).view({1, 1, 2, 3})));
  // Blocks of three by three pixels; the last ones are smaller.
  at::Tensor large = at::zeros({1, 1, 2, 257}, at::kByte);
  large.select(2, 0).narrow(2, 0, 3).fill_(210);
  large.select(3, 256).fill_(90);
  NamedRows of_large = rows_with(large, at::zeros({1}, at::kLong));
  const at::Tensor reduced = report_of<FirstPixels>(of_large).worst_pictures;
  ASSERT_EQ(reduced.sizes(), (at::IntArrayRef{1, 1, 86, 1}));
  EXPECT_EQ(reduced[0][0][0][0].item<int>(), 105);
  EXPECT_EQ(reduced[0][0][85][0].item<int>(), 45);
}

TEST_P(ValidationReports, HaveNoPicturesOfOtherSamples) {
  NamedRows numbers = rows_with(twelve_logits(), twelve_labels());
  EXPECT_FALSE(report_of<GivenLogits>(numbers).worst_pictures.defined());
  NamedRows two_channels = rows_with(at::ones({3, 2, 2, 2}, at::kByte), at::zeros({3}, at::kLong));
  EXPECT_FALSE(report_of<FirstPixels>(two_channels).worst_pictures.defined());
}

TEST_P(ValidationReports, UseTheBatchesOfTheValidation) {
  NamedRows data = rows_with(twelve_logits(), twelve_labels(), 5);
  const auto model = std::make_shared<GivenLogits>();
  Trainer limited({.num_gpus = num_gpus_wanted(), .limit_val_batches = 2});
  EXPECT_EQ(validation_report(limited, model, data).num_samples, 10);
  TensorData without({twelve_logits(), twelve_labels()}, {}, {});
  EXPECT_THROW(validation_report(limited, model, without), DataError);
}

TEST_P(ValidationReports, LeaveTheModelAndTheRandomNumbersAsTheyWere) {
  class Drawing : public GivenLogits {
   public:
    at::Tensor forward(const at::Tensor& inputs) override { return inputs + at::rand_like(inputs); }
  };
  NamedRows data = rows_with(twelve_logits(), twelve_labels());
  const auto model = std::make_shared<Drawing>();
  const at::Tensor before = at::globalContext().defaultGenerator(at::kCPU).get_state();
  report_of<Drawing>(data, {}, model);
  EXPECT_TRUE(same(at::globalContext().defaultGenerator(at::kCPU).get_state(), before));
  EXPECT_TRUE(model->is_training());
  EXPECT_TRUE(at::GradMode::is_enabled());
}

TEST_P(ValidationReports, AreWrittenAsFiles) {
  NamedRows data = rows_with(twelve_logits(), twelve_labels());
  write_validation_report(report_of<GivenLogits>(data, {.num_worst = 1}), scratch_.folder());
  EXPECT_EQ(read_file(scratch_ / "confusion_matrix.csv", 1000),
            "label,ant,\"bee, wild\",cat\nant,1,1,1\n\"bee, wild\",1,1,3\ncat,2,0,2\n");
  const std::string calibration = read_file(scratch_ / "calibration.csv", 10000);
  EXPECT_TRUE(
      calibration.starts_with("bin,from,to,samples,mean_confidence,accuracy\n1,0,0.06666666666666667,0,,\n"));
  EXPECT_NE(calibration.find("\n10,0.6,0.6666666666666666,4,0.6474"), std::string::npos) << calibration;
  const std::string worst = read_file(scratch_ / "worst_predictions.csv", 1000);
  EXPECT_TRUE(
      worst.starts_with("sample,row,label,predicted,probability,confidence,loss\n2,r2,cat,ant,0.0282"))
      << worst;

  NamedRows numbers =
      rows_with(at::tensor({1.5F, 12.3F}).unsqueeze(1), at::tensor({1.F, 12.3F}).unsqueeze(1));
  write_validation_report(report_of<GivenNumbers>(numbers), scratch_.folder());
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "confusion_matrix.csv"));
  EXPECT_EQ(read_file(scratch_ / "worst_predictions.csv", 1000),
            "sample,row,target,predicted,loss\n0,r0,1,1.5,0.25\n1,r1,12.3,12.3,0\n");
  EXPECT_EQ(read_file(scratch_ / "residuals.csv", 1000),
            "sample,row,target,predicted,residual\n0,r0,1,1.5,-0.5\n1,r1,12.3,12.3,0\n");

  NamedRows fields = rows_with(at::tensor({1.F, 2.F, 3.F}).view({1, 3, 1, 1}), at::zeros({1, 3, 1, 1}));
  write_validation_report(report_of<GivenNumbers>(fields), scratch_.folder());
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "residuals.csv"));
  EXPECT_EQ(read_file(scratch_ / "worst_predictions.csv", 1000).substr(0, 25), "sample,row,loss\n0,r0,4.66");
  const NpyArray errors = read_npy(scratch_ / "field_errors.npy");
  EXPECT_EQ(errors.type, TensorType::float32);
  EXPECT_EQ(errors.shape, (std::vector<std::int64_t>{3, 1, 1}));
  std::vector<float> values(3);
  ASSERT_EQ(errors.bytes.size(), 3 * sizeof(float));
  std::memcpy(values.data(), errors.bytes.data(), errors.bytes.size());
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3}));
  remove_validation_report(scratch_.folder());
  EXPECT_TRUE(std::filesystem::is_empty(scratch_.folder()));
}

TEST_P(ValidationReports, HaveNoTwoColumnsOfOneTitle) {
  NamedRows data = rows_with(at::ones({1, 2}), at::zeros({1, 2}));
  ValidationReport report = report_of<GivenNumbers>(data);
  const auto title_of_ids = [&](const char* name) {
    report.ids = {.name = name, .values = {"7"}};
    write_validation_report(report, scratch_.folder());
    const std::string text = read_file(scratch_ / "residuals.csv", 1000), start = "sample,";
    return text.substr(start.size(), text.find(',', start.size()) - start.size());
  };
  for (const char* const name : {"sample", "label", "predicted", "probability", "confidence", "loss",
                                 "residual", "target", "target_1", "predicted_0", "residual_12"})
    EXPECT_EQ(title_of_ids(name), "id") << name;
  for (const char* const name : {"target_id", "targets", "target_", "label_1", "row"})
    EXPECT_EQ(title_of_ids(name), name);
}

}  // namespace
}  // namespace kindling
