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

  static constexpr auto fields = kindling::fields(
      kindling::field("score", &ClassScoreOptions::score,
                      {.doc = "the score to compute for each class", .choices = "precision|recall|f1"}),
      kindling::field("average", &ClassScoreOptions::average,
                      {.doc = "how the classes are combined; binary: class 1 of two",
                       .choices = "macro|micro|weighted|binary|per_class"}),
      kindling::field("ignore_index", &ClassScoreOptions::ignore_index,
                      {.doc = "label that is not counted"}));
};

// Precision tp / (tp + fp), recall tp / (tp + fn) or F1 2·tp / (2·tp + fp + fn) of classes; 0 where nothing
// is divided by nothing. Outputs are logits [batch, classes, …], the largest is the answer, or one logit per
// label, [batch] or [batch, 1, …], which says 1 where it is positive. Labels are class numbers [batch, …] of
// an integral type (for one logit also floating-point 0 and 1), or class probabilities of the outputs' shape,
// whose largest counts. The numbers are those of scikit-learn (zero_division=0) and torchmetrics:
//   macro      mean over the classes that are somewhere, among labels or answers
//   micro      of the sums of all classes: with one answer per label, the share of right ones
//   weighted   mean over classes, by how often they are labels
//   binary     of class 1, where there are two
//   per_class  a number for each, as NAME[0], NAME[1], …
// With weights each answer counts as much as its own. Equal to the bit however the samples come in batches.
class KINDLING_API ClassScore : public Metric {
 public:
  // Throws ConfigError.
  explicit ClassScore(ClassScoreOptions options = {});

  // Float64 [3, 3·(classes + 2)]. Throws DataError for shapes and dtypes that do not fit.
  at::Tensor update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                             const at::Tensor& weights) const override;
  // Both throw DataError where a label was no class; only then, when the numbers have come to the host, can
  // it be known.
  double compute(std::span<const double> sums, double num_samples) const override;  // per_class: macro
  NamedValues values(std::span<const double> sums, double num_samples) const override;

 private:
  ClassScoreOptions options_;
};

}  // namespace kindling
