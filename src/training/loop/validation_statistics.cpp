#include "training/loop/validation_statistics.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "kindling/metrics/accuracy.h"
#include "kindling/nn/classifier.h"
#include "kindling/tensors/move.h"
#include "metrics/class_answers.h"
#include "metrics/exact_sums.h"
#include "metrics/regression_pair.h"
#include "nn/class_values.h"

namespace kindling {
namespace {

constexpr std::int64_t kMostTargets = 64;
constexpr std::int64_t kMostFieldNumbers = std::int64_t{1} << 24;  // at once; 128 MiB in float64
constexpr std::int64_t kMostMaskPixels = 128;                      // of a side
constexpr int kNoClass = 255;                                      // in masks
constexpr const char* kReportPlace = "validation_report";

// The rows with the largest numbers in their first column, on the device. NaN counts as the largest number.
class LargestRows {
 public:
  explicit LargestRows(std::int64_t count) : count_(count) {}

  // `masks` [rows, …]: kept with the rows; undefined, or of other sizes than before: all are dropped.
  void add(const at::Tensor& rows, const at::Tensor& masks) {
    const at::Tensor all = after(rows_, rows);
    const at::Tensor order = std::get<1>(all.select(1, 0).sort(/*stable=*/true, 0, /*descending=*/true))
                                 .narrow(0, 0, std::min(count_, all.size(0)));
    const bool fit = masks.defined() && (masks_.defined() ? masks.sizes().slice(1) == masks_.sizes().slice(1)
                                                          : !rows_.defined());
    masks_ = fit ? after(masks_, masks).index_select(0, order) : at::Tensor();
    rows_ = all.index_select(0, order);
  }
  // float64 [rows, columns] on the CPU; undefined without any.
  at::Tensor on_host() const { return rows_.defined() ? move_to(rows_, cpu()).contiguous() : rows_; }
  // On the CPU; undefined without any.
  at::Tensor masks_on_host() const { return masks_.defined() ? move_to(masks_, cpu()).contiguous() : masks_; }

 private:
  static at::Tensor after(const at::Tensor& first, const at::Tensor& then) {
    return first.defined() ? at::cat({first, then}) : then;
  }

  std::int64_t count_;
  at::Tensor rows_{}, masks_{};
};

// What all kinds of models have in common.
class SampleStatistics : public ValidationStatistics {
 public:
  explicit SampleStatistics(const ValidationReportOptions& options)
      : options_(options), worst_(options.num_worst) {}

  void take(const Prediction& batch) final {
    const at::Tensor& outputs = batch.outputs.tensors()[0];
    add(outputs, batch.batch.labels());
    indices_.push_back(batch.indices);
    num_samples_ += batch.batch.num_samples();
  }
  void write_to(ValidationReport& report) const override {
    report.num_samples = num_samples_;
    const at::Tensor rows = worst_.on_host();
    if (!rows.defined()) return;
    const at::Tensor indices = this->indices();
    for (std::int64_t i = 0; i < rows.size(0); ++i) {
      const std::span row(rows.const_data_ptr<double>() + i * rows.size(1),
                          static_cast<std::size_t>(rows.size(1)));
      if (row[0] == kIgnoredLoss) continue;
      WorstPrediction worst = worst_of(row.subspan(2));
      worst.loss = row[0];
      worst.sample = indices.const_data_ptr<std::int64_t>()[static_cast<std::int64_t>(row[1])];
      report.worst.push_back(std::move(worst));
    }
    // Those that do not count are the last ones.
    if (const at::Tensor masks = worst_.masks_on_host(); masks.defined() && !report.worst.empty())
      report.worst_masks = masks.narrow(0, 0, std::ssize(report.worst));
  }

 protected:
  static constexpr double kIgnoredLoss = -std::numeric_limits<double>::infinity();

  virtual void add(const at::Tensor& outputs, const at::Tensor& labels) = 0;
  // Gets the values of add_samples().
  virtual WorstPrediction worst_of(std::span<const double> values) const = 0;

  // `losses` [batch], kIgnoredLoss for samples that do not count; `values` [batch, n]: further columns;
  // `masks` [batch, 2, height, width]: see ValidationReport::worst_masks.
  void add_samples(const at::Tensor& losses, const at::Tensor& values, const at::Tensor& masks = {}) {
    const at::TensorOptions numbers = losses.options().dtype(at::kDouble);
    const at::Tensor positions = at::arange(num_samples_, num_samples_ + losses.size(0), numbers);
    worst_.add(at::cat({at::stack({losses.to(at::kDouble), positions}, 1), values.to(at::kDouble)}, 1),
               masks);
  }
  const ValidationReportOptions& options() const noexcept { return options_; }
  std::int64_t num_samples() const noexcept { return num_samples_; }  // before this batch
  at::Tensor indices() const { return at::cat(indices_); }

 private:
  const ValidationReportOptions options_;
  LargestRows worst_;
  std::vector<at::Tensor> indices_{};
  std::int64_t num_samples_ = 0;
};

class ClassStatistics : public SampleStatistics {
 public:
  // `takes_all`: also several labels per sample, with the classes in the second dimension of the outputs.
  ClassStatistics(const ValidationReportOptions& options, std::int64_t ignore_index, bool takes_all)
      : SampleStatistics(options), ignore_index_(ignore_index), takes_all_(takes_all) {}

  void write_to(ValidationReport& report) const override {
    SampleStatistics::write_to(report);
    if (counts_.defined()) write_matrix(report);
    if (bins_.defined()) write_calibration(report);
  }

 private:
  void add(const at::Tensor& outputs, const at::Tensor& labels) override {
    if (outputs.dim() > 2 && !takes_all_) return;
    const ClassAnswers answers = class_answers(kReportPlace, outputs, labels, {}, ignore_index_);
    num_classes_ = answers.num_classes;
    const at::Tensor predicted = answers.predicted(), is_ignored = answers.labels.ge(num_classes_);
    if (num_classes_ <= options().max_classes)
      // As in ConfusionMatrix: rows for the codes of labels, columns for the classes and for none.
      add_to(counts_, counts_of(answers.labels.mul(num_classes_ + 1).add_(predicted),
                                (num_classes_ + 2) * (num_classes_ + 1), {}));
    const at::Tensor scores = answers.scores.dim() == 1
                                  ? at::stack({at::zeros_like(answers.scores), answers.scores}, 1)
                                  : answers.scores,
                     logits = scores.to(at::promote_types(scores.scalar_type(), at::kFloat)),
                     confidence = logits.softmax(1).amax(1).to(at::kDouble);
    add_to_bins(confidence, predicted.eq(answers.labels), is_ignored);
    const at::Tensor labels_or_last = answers.labels.clamp_max(num_classes_ - 1).unsqueeze(1),
                     logs = logits.log_softmax(1).gather(1, labels_or_last).squeeze(1).to(at::kDouble);
    if (!has_groups_) has_groups_ = predicted.size(0) != outputs.size(0);
    if (*has_groups_)
      return add_groups(outputs, answers.labels, predicted, logs.neg().masked_fill_(is_ignored, 0));
    if (predicted.size(0) != outputs.size(0)) return;  // of other kinds than the first batch
    add_samples(
        logs.neg().masked_fill_(is_ignored, kIgnoredLoss),
        at::stack({answers.labels.to(at::kDouble), predicted.to(at::kDouble), logs.exp(), confidence}, 1));
  }

  // Several labels per sample; all [labels], those of a sample one after another.
  void add_groups(const at::Tensor& outputs, const at::Tensor& labels, const at::Tensor& predicted,
                  const at::Tensor& losses) {
    const std::int64_t batch = outputs.size(0);
    if (batch == 0 || labels.size(0) % batch != 0) return;
    const at::Tensor is_counted = labels.lt(num_classes_).view({batch, -1}),
                     is_wrong = predicted.ne(labels).view({batch, -1}).logical_and_(is_counted),
                     counts = is_counted.sum(1);
    add_samples(losses.view({batch, -1}).sum(1).div_(counts).masked_fill_(counts.eq(0), kIgnoredLoss),
                is_wrong.sum(1).to(at::kDouble).div_(counts).unsqueeze(1),
                outputs.dim() == 4 && num_classes_ <= kNoClass ? masks_of(outputs, {labels, predicted})
                                                               : at::Tensor());
  }

  // `classes`: two of [labels]. Large masks keep every second, third, … pixel.
  at::Tensor masks_of(const at::Tensor& outputs, const std::vector<at::Tensor>& classes) const {
    const std::int64_t height = outputs.size(2), width = outputs.size(3),
                       stride = (std::max(height, width) + kMostMaskPixels - 1) / kMostMaskPixels;
    std::vector<at::Tensor> reduced;
    for (const at::Tensor& all : classes)
      reduced.push_back(all.view({outputs.size(0), height, width})
                            .slice(1, 0, std::nullopt, stride)
                            .slice(2, 0, std::nullopt, stride));
    const at::Tensor masks = at::stack(reduced, 1);
    return masks.masked_fill(masks.ge(num_classes_), kNoClass).to(at::kByte);
  }

  // Counts the labels, confidences and right predictions of each bin, and of one more bin that is not used.
  void add_to_bins(const at::Tensor& confidence, const at::Tensor& is_right, const at::Tensor& is_ignored) {
    const std::int64_t num_bins = options().num_bins;
    const at::Tensor is_unused = is_ignored.logical_or(confidence.isnan()),
                     edges = at::arange(1, num_bins, confidence.options()).div_(num_bins),
                     bins = at::bucketize(confidence, edges).masked_fill_(is_unused, num_bins);
    add_to(bins_, at::stack({counts_of(bins, num_bins + 1, {}),
                             counts_of(bins, num_bins + 1, confidence.masked_fill(is_unused, 0)),
                             counts_of(bins, num_bins + 1, is_right.to(at::kDouble))}));
  }

  static void add_to(at::Tensor& sums, const at::Tensor& more) {
    if (sums.defined())
      sums.add_(more);
    else
      sums = more;
  }

  static std::vector<double> sums_on_host(const at::Tensor& sums) {
    const at::Tensor parts = move_to(sums, cpu()).contiguous();
    return sum_of_parts({parts.const_data_ptr<double>(), static_cast<std::size_t>(parts.numel())},
                        kPartsOfWeights);
  }

  void write_matrix(ValidationReport& report) const {
    const std::vector<double> cells = sums_on_host(counts_);
    report.confusion_matrix = at::empty({num_classes_, num_classes_}, at::kLong);
    auto* out = report.confusion_matrix.mutable_data_ptr<std::int64_t>();
    for (std::int64_t label = 0; label < num_classes_; ++label)
      for (std::int64_t predicted = 0; predicted < num_classes_; ++predicted)
        *out++ = std::llround(cells[static_cast<std::size_t>(label * (num_classes_ + 1) + predicted)]);
  }

  void write_calibration(ValidationReport& report) const {
    const at::Tensor bins = move_to(bins_, cpu());
    const std::vector<double> labels = sums_on_host(bins[0]), confidences = sums_on_host(bins[1]),
                              right = sums_on_host(bins[2]);
    const auto num_bins = static_cast<std::size_t>(options().num_bins);
    double differences = 0, all = 0;
    for (std::size_t i = 0; i < num_bins; ++i) {
      const auto count = static_cast<double>(num_bins);
      report.calibration.push_back({.low = static_cast<double>(i) / count,
                                    .high = static_cast<double>(i + 1) / count,
                                    .num_labels = std::llround(labels[i]),
                                    .mean_confidence = confidences[i] / labels[i],
                                    .accuracy = right[i] / labels[i]});
      differences += std::abs(right[i] - confidences[i]);
      all += labels[i];
    }
    report.ece = differences / all;
    if (all == 0) report.calibration.clear();
  }

  WorstPrediction worst_of(std::span<const double> values) const override {
    if (*has_groups_) return {.error_rate = values[0]};
    const auto predicted = static_cast<std::int64_t>(values[1]);
    return {.label = static_cast<std::int64_t>(values[0]),
            .predicted = predicted < num_classes_ ? predicted : -1,
            .probability = values[2],
            .confidence = values[3]};
  }

  std::int64_t ignore_index_, num_classes_ = 0;
  bool takes_all_;
  std::optional<bool> has_groups_{};  // several labels per sample
  at::Tensor counts_{}, bins_{};      // of the matrix; [labels, confidences, right predictions] of the bins
};

// Several labels per sample.
class LabelStatistics : public SampleStatistics {
 public:
  LabelStatistics(const ValidationReportOptions& options, std::optional<std::int64_t> ignore_index)
      : SampleStatistics(options), ignore_index_(ignore_index) {}

  void write_to(ValidationReport& report) const override {
    SampleStatistics::write_to(report);
    if (!counts_.defined()) return;
    const at::Tensor counts = move_to(counts_, cpu()).contiguous();
    const auto* number = counts.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < counts.size(0); ++i, number += 3)
      report.class_counts.push_back(
          {.num_labels = number[0], .num_predicted = number[1], .num_both = number[2]});
  }

 private:
  void add(const at::Tensor& outputs, const at::Tensor& labels) override {
    if (outputs.dim() < 2 || outputs.sizes() != labels.sizes()) return;
    at::Tensor has_label = labels.gt(0.5), is_predicted = outputs.gt(0);
    if (ignore_index_) {
      const at::Tensor counts = labels.ne(*ignore_index_);
      has_label = has_label.logical_and(counts);
      is_predicted = is_predicted.logical_and(counts);
    }
    const at::Tensor both = has_label.logical_and(is_predicted);
    const auto of_classes = [](const at::Tensor& flags) {
      return flags.transpose(0, 1).flatten(1).sum(1, /*keepdim=*/false, at::kLong);
    };
    const at::Tensor counts =
        at::stack({of_classes(has_label), of_classes(is_predicted), of_classes(both)}, 1);
    counts_ = counts_.defined() ? counts_ + counts : counts;
  }
  WorstPrediction worst_of(std::span<const double>) const override { return {}; }

  std::optional<std::int64_t> ignore_index_;
  at::Tensor counts_{};  // int64 [classes, 3]: labels, predicted, both
};

// Every n-th row of all batches, on the device. Where there are too many, every second one of them remains.
class ThinnedRows {
 public:
  explicit ThinnedRows(std::int64_t max_numbers) : max_numbers_(max_numbers) {}

  // `first`: the number of the first row.
  void add(const at::Tensor& rows, std::int64_t first) {
    const std::int64_t skipped = (stride_ - first % stride_) % stride_;
    if (skipped >= rows.size(0)) return;
    rows_.push_back(rows.slice(0, skipped, std::nullopt, stride_).clone());
    num_rows_ += rows_.back().size(0);
    while (num_rows_ > std::max<std::int64_t>(max_numbers_ / rows.size(1), 1)) {
      const at::Tensor half = at::cat(rows_).slice(0, 0, std::nullopt, 2).clone();
      rows_ = {half};
      num_rows_ = half.size(0);
      stride_ *= 2;
    }
  }
  std::int64_t stride() const noexcept { return stride_; }
  // [rows, columns] on the CPU; undefined without any.
  at::Tensor on_host() const { return rows_.empty() ? at::Tensor() : move_to(at::cat(rows_), cpu()); }

 private:
  std::int64_t max_numbers_, num_rows_ = 0, stride_ = 1;
  std::vector<at::Tensor> rows_{};
};

// The squared errors of numbers [batch, numbers], float64. Ignored targets have the error 0.
struct SquaredErrors {
  at::Tensor errors, is_counted;
};

// The sums of the squared errors of each cell, on the device.
class CellErrors {
 public:
  explicit CellErrors(std::int64_t space_dims) : space_dims_(static_cast<std::size_t>(space_dims)) {}

  // `sizes`: of a sample.
  void add(const SquaredErrors& batch, at::IntArrayRef sizes) {
    if (!sums_.defined())
      sizes_ = sizes.vec();
    else if (sizes != at::IntArrayRef(sizes_))
      has_several_sizes_ = true;
    if (has_several_sizes_ || space_dims_ > 2 || sizes.size() > space_dims_ + 1)
      return;  // no maps of volumes
    const at::Tensor sums = at::stack({batch.errors.sum(0), batch.is_counted.sum(0).to(at::kDouble)});
    sums_ = sums_.defined() ? sums_.add_(sums) : sums;
  }
  // Returns float32 [channels, height, width] on the CPU, see ValidationReport::field_errors.
  at::Tensor on_host() const {
    if (!sums_.defined() || has_several_sizes_) return {};
    const at::Tensor counts = sums_[1], rmse = sums_[0].div(counts).sqrt_(),
                     is_infinite = rmse.isfinite().logical_not_().logical_and_(counts.gt(0)),
                     map = rmse.masked_fill_(is_infinite, std::numeric_limits<double>::infinity());
    const at::Tensor on_host = move_to(map.to(at::kFloat), cpu()).view(sizes_);
    if (on_host.isnan().all().item<bool>()) return {};
    const bool has_channels = sizes_.size() == space_dims_ + 1;
    return on_host.reshape({has_channels ? sizes_[0] : 1,
                            space_dims_ == 2 && sizes_.size() > 1 ? sizes_.end()[-2] : 1, sizes_.back()});
  }

 private:
  std::size_t space_dims_;
  std::vector<std::int64_t> sizes_{};
  bool has_several_sizes_ = false;
  at::Tensor sums_{};  // float64 [2, numbers]: the squared errors, and how many there are
};

class RegressionStatistics : public SampleStatistics {
 public:
  RegressionStatistics(const ValidationReportOptions& options, std::optional<std::int64_t> ignore_index,
                       std::int64_t space_dims)
      : SampleStatistics(options),
        ignore_index_(ignore_index),
        pairs_(2 * options.max_residuals),
        cells_(space_dims) {}

  void write_to(ValidationReport& report) const override {
    SampleStatistics::write_to(report);
    report.field_errors = cells_.on_host();
    const at::Tensor pairs = pairs_.on_host();
    if (!pairs.defined()) return;
    const auto halves = pairs.chunk(2, 1);
    const at::Tensor is_ignored = this->is_ignored(halves[0]),
                     rows = is_ignored.all(1).logical_not().nonzero().squeeze(1);
    if (rows.size(0) == 0) return;
    const at::Tensor samples = indices().slice(0, 0, std::nullopt, pairs_.stride());
    report.residuals = {.samples = samples.index_select(0, rows),
                        .targets = halves[0].masked_fill(is_ignored, kNoTarget).index_select(0, rows),
                        .predictions = halves[1].index_select(0, rows),
                        .stride = pairs_.stride()};
  }

 private:
  void add(const at::Tensor& outputs, const at::Tensor& labels) override {
    if (outputs.dim() > 2 || (outputs.dim() == 2 && outputs.size(1) > kMostTargets))
      return add_fields(outputs, labels);
    if (outputs.dim() == 0) return;
    const RegressionPair pair = regression_pair(kReportPlace, outputs, labels, {});
    const at::Tensor pairs = at::cat({pair.labels, pair.outputs}, 1);
    pairs_.add(pairs, num_samples());
    add_samples(losses_of(squared_errors(pair)), pairs);
  }

  void add_fields(const at::Tensor& outputs, const at::Tensor& labels) {
    // Other labels belong to a loss of the model's own.
    if (outputs.numel() == 0 || outputs.sizes() != labels.sizes()) return;
    // In parts, because float64 takes several times the memory of a batch.
    const std::int64_t batch = outputs.size(0),
                       part = std::max<std::int64_t>(kMostFieldNumbers / (outputs.numel() / batch), 1);
    std::vector<at::Tensor> losses;
    for (std::int64_t begin = 0; begin < batch; begin += part) {
      const std::int64_t end = std::min(begin + part, batch);
      const SquaredErrors errors = squared_errors(
          regression_pair(kReportPlace, outputs.slice(0, begin, end), labels.slice(0, begin, end), {}));
      cells_.add(errors, outputs.sizes().slice(1));
      losses.push_back(losses_of(errors));
    }
    const at::Tensor all = at::cat(losses);
    add_samples(all, all.unsqueeze(1).narrow(1, 0, 0));
  }

  SquaredErrors squared_errors(const RegressionPair& pair) const {
    const at::Tensor is_ignored = this->is_ignored(pair.labels);
    return {.errors = pair.outputs.sub(pair.labels).square_().masked_fill_(is_ignored, 0),
            .is_counted = is_ignored.logical_not()};
  }

  static at::Tensor losses_of(const SquaredErrors& errors) {
    const at::Tensor counts = errors.is_counted.sum(1);
    return errors.errors.sum(1).div_(counts).masked_fill_(counts.eq(0), kIgnoredLoss);
  }

  at::Tensor is_ignored(const at::Tensor& targets) const {
    const at::Tensor is_missing = targets.isnan();
    return ignore_index_ ? targets.eq(*ignore_index_).logical_or_(is_missing) : is_missing;
  }

  WorstPrediction worst_of(std::span<const double> values) const override {
    const auto middle = values.begin() + std::ssize(values) / 2;
    WorstPrediction worst{.targets = {values.begin(), middle}, .predictions = {middle, values.end()}};
    if (ignore_index_) std::ranges::replace(worst.targets, static_cast<double>(*ignore_index_), kNoTarget);
    return worst;
  }

  static constexpr double kNoTarget = std::numeric_limits<double>::quiet_NaN();
  std::optional<std::int64_t> ignore_index_;
  ThinnedRows pairs_;  // targets, then predictions
  CellErrors cells_;
};

}  // namespace

std::unique_ptr<ValidationStatistics> validation_statistics(const Module& model,
                                                            const ValidationReportOptions& options) {
  const auto* const of_classes = dynamic_cast<const ClassLossModel*>(&model);
  const bool is_own = dynamic_cast<const Classifier*>(&model) != nullptr,
             has_accuracy = dynamic_cast<const Accuracy*>(model.metric_of("val_acc").get()) != nullptr,
             is_classifier = is_own || (of_classes != nullptr && has_accuracy);
  if (is_classifier && !has_several_labels(model))
    return std::make_unique<ClassStatistics>(options, of_classes->loss_options().ignore_index.value_or(-100),
                                             is_own);
  if (is_classifier && has_several_labels(model))
    return std::make_unique<LabelStatistics>(options, of_classes->loss_options().ignore_index);
  if (!is_classifier && model.is_regressor()) {
    const auto ignored = of_classes != nullptr ? of_classes->loss_options().ignore_index : std::nullopt;
    return std::make_unique<RegressionStatistics>(options, ignored, model.space_dims());
  }
  return nullptr;
}

}  // namespace kindling
