#pragma once

#include <cstdint>
#include <string>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/metrics/metric.h"

namespace kindling {

struct ClassScoreOptions {
  std::string score = "f1";
  std::string average = "macro";
  std::int64_t ignore_index = -100;
  bool multi_label = false;

  static constexpr auto fields = kindling::fields(
      kindling::field(
          "score", &ClassScoreOptions::score,
          {.doc = "the score to compute for each class", .choices = "precision|recall|f1|iou|dice"}),
      kindling::field("average", &ClassScoreOptions::average,
                      {.doc = "how the classes are combined; binary: class 1 of two classes",
                       .choices = "macro|micro|weighted|binary|per_class"}),
      kindling::field("ignore_index", &ClassScoreOptions::ignore_index,
                      {.doc = "label that is not counted", .example = "-100"}),
      kindling::field(
          "multi_label", &ClassScoreOptions::multi_label,
          {.doc = "each class has a yes or no of its own: labels are 0 and 1 of the outputs' shape"}));
};

// Precision tp / (tp + fp), recall tp / (tp + fn), F1 2·tp / (2·tp + fp + fn) or intersection over union
// tp / (tp + fp + fn), the Jaccard index, of classes; 0 if the denominator is 0. Dice is another name of F1
// (Sørensen–Dice coefficient). The counts are those of all pixels of an epoch, not of each image. Outputs are
// logits [batch, classes, …], of which the largest is the prediction, or one logit per label, [batch] or
// [batch, 1, …], which predicts 1 if it is positive. Labels are class numbers [batch, …] of an integral type
// (for one logit also floating-point 0 and 1), or class probabilities of the outputs' shape, whose largest
// counts. The results match scikit-learn (zero_division=0) and torchmetrics:
//   macro      mean over the classes that occur among labels or predictions
//   micro      of the sums of all classes: with one prediction per label, the fraction of correct ones
//   weighted   mean over classes, weighted by how often they are labels
//   binary     of class 1 of two
//   per_class  a number for each, as NAME[0], NAME[1], …; of iou and dice NaN for a class that does not occur
// With multi_label, outputs and labels have the same shape [batch, classes, …]: a positive output predicts
// its class, a label 1 (or above 0.5) has it, and the macro average is over all classes, as in both
// libraries; that of iou and dice is over those that occur. Outputs with a NaN are not a prediction, so that
// their label is missed. With weights, each prediction counts with the weight of its sample. The result is
// bit-identical for every division of the samples into batches.
class KINDLING_API ClassScore : public Metric {
 public:
  // Throws ConfigError.
  explicit ClassScore(ClassScoreOptions options = {});

  // Returns float64 [3, 3·(classes + 2)]. Throws DataError for shapes and dtypes that do not match.
  at::Tensor update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                             const at::Tensor& weights) const override;
  at::Tensor num_without_class(const at::Tensor& outputs, const at::Tensor& labels) const override;
  // Both throw DataError if a label was not a class; this is known only once the sums are on the host.
  double compute(std::span<const double> sums, double num_samples) const override;  // per_class: macro
  NamedValues values(std::span<const double> sums, double num_samples) const override;

 private:
  ClassScoreOptions options_;
};

}  // namespace kindling
