#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/metrics/metric.h"

namespace kindling {

// Returns the fraction of correct top-1 predictions: the samples whose largest output is the one of their
// label. Takes outputs [batch, classes, …] and labels [batch, …] (class numbers; -100 is ignored), or class
// probabilities of the outputs' shape, whose largest counts. Returns a float32 scalar on the same device; NaN
// if no label counts, or if such probabilities do not add up to 1, as those of several classes at once
// (multi-label) do not. Not
// differentiable; the host does not wait. Throws DataError for labels of another shape.
KINDLING_API at::Tensor accuracy(const at::Tensor& outputs, const at::Tensor& labels);

struct AccuracyOptions {
  std::optional<std::int64_t> ignore_index{};
  bool multi_label = false;

  static constexpr auto fields = kindling::fields(
      kindling::field(
          "ignore_index", &AccuracyOptions::ignore_index,
          {.doc = "label that is not counted; absent: -100, and other labels that are not a class "
                  "count as wrong",
           .example = "-100"}),
      kindling::field("multi_label", &AccuracyOptions::multi_label,
                      {.doc = "each class has a yes or no of its own, all of which are counted"}));
};

// The fraction of correct top-1 predictions over all answers of an epoch (one per sample, or one per pixel or
// token); with weights, the fraction of the weight. The label -100 is ignored, as by the loss. Without an
// ignore_index, another label that is not a class counts as a wrong answer. With multi_label each output is
// an answer: positive for the label 1, else for 0 (of labels between them, those above 0.5 are 1); the result
// is that of torchmetrics' MultilabelAccuracy with the average "micro".
//
// A batch without weights and without an ignore_index adds one number, how many answers are right, which is
// also logged for its step. Others add float64 [3, 4]; outputs and labels may then have all forms that
// ClassScore accepts. Weights must be given for all batches of an epoch or for none. The result is
// bit-identical for every division of the answers into batches; without weights, for batches of up to 2^24
// answers, because the log keeps float32.
class KINDLING_API Accuracy : public Metric {
 public:
  explicit Accuracy(AccuracyOptions options = {});

  at::Tensor update(const at::Tensor& outputs, const at::Tensor& labels) const override;
  at::Tensor update_without_nan(const at::Tensor& outputs, const at::Tensor& labels) const override;
  at::Tensor update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                             const at::Tensor& weights) const override;
  std::optional<std::int64_t> num_answers(const at::Tensor& outputs, const at::Tensor& labels) const override;
  at::Tensor num_counted(const at::Tensor& outputs, const at::Tensor& labels,
                         const at::Tensor& num_labels) const override;
  at::Tensor num_without_class(const at::Tensor& outputs, const at::Tensor& labels) const override;
  // Throws DataError for labels of the outputs' shape that do not add up to 1, and if there is an
  // ignore_index or multi_label and a label was not a class.
  double compute(std::span<const double> sums, double num_samples) const override;

 private:
  AccuracyOptions options_;
};

}  // namespace kindling
