#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/metrics/metric.h"

namespace kindling {

struct AurocOptions {
  std::string average = "macro";
  std::optional<std::int64_t> num_thresholds{};
  std::int64_t ignore_index = -100;

  static constexpr auto fields = kindling::fields(
      kindling::field(
          "average", &AurocOptions::average,
          {.doc = "how the values of the classes are combined", .choices = "macro|weighted|per_class"}),
      kindling::field(
          "num_thresholds", &AurocOptions::num_thresholds,
          {.doc = "bins the scores at this number of thresholds, which bounds the memory, but not "
                  "the error; absent: exact",
           .min = 2,
           .max = 1e6,
           .example = "1001"}),
      kindling::field("ignore_index", &AurocOptions::ignore_index,
                      {.doc = "label that is not counted", .example = "-100"}));
};

// The area under the receiver operating characteristic of each class against all others: the probability that
// a sample of the class scores higher than one of another class, where ties count as half (the statistic of
// Mann and Whitney). The score of a class is its softmax; that of one logit per label is the logit. The area
// depends on the order of the scores only, whatever their range, and is that of scikit-learn's roc_auc_score
// for these scores. A NaN score makes it NaN.
//
// An epoch keeps all outputs and labels on the device: a number for each output, one for the label and, with
// weights, one for the weight of each sample, in float32 or, for float64 outputs or weights, float64. They
// are sorted at its end. With several ranks each of them receives the samples of all.
//
// `num_thresholds` selects a bounded form instead, and logs a warning. The thresholds are the probabilities
// 1 / (1 + exp(−z)) with z in equal steps from −20 to 20; scores between the same two count as equal. So an
// epoch needs counts of a fixed size. torchmetrics returns the same number for `thresholds=` set to that list
// between 0 and 1. The result differs from the exact area by at most half of Σ p·n over the bins, where p and
// n are the fractions of the positive and the negative samples in a bin: by up to 0.5 for scores that are
// close together or beyond the outer thresholds.
//
//   macro      mean over the classes that have both positive and negative samples; NaN if there is none
//   weighted   the same, weighted by how often a class is the label
//   per_class  a number for each, as NAME[0], NAME[1], …; NaN for a class without positive or without
//              negative samples, as scikit-learn has it
// Outputs, labels and weights have the forms that ClassScore accepts. The result is bit-identical for every
// division of the samples into batches.
class KINDLING_API Auroc : public Metric {
 public:
  // Throws ConfigError.
  explicit Auroc(AurocOptions options = {});

  // Returns the samples, [n, outputs + 1] or with weights [n, 1, outputs + 2]; with num_thresholds float64
  // [3, 2·outputs·(num_thresholds + 1) + 3]. Throws DataError for shapes and dtypes that do not match.
  at::Tensor update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                             const at::Tensor& weights) const override;
  bool keeps_samples() const override { return !options_.num_thresholds; }
  at::Tensor sums_of(const at::Tensor& samples) const override;  // float64 [4·outputs + 1]
  at::Tensor num_without_class(const at::Tensor& outputs, const at::Tensor& labels) const override;
  // Both throw DataError if a label was not a class.
  double compute(std::span<const double> sums, double num_samples) const override;  // per_class: macro
  NamedValues values(std::span<const double> sums, double num_samples) const override;

 private:
  struct Area {
    double value, weight;  // of a class, and the weight of its positive samples
    bool is_defined;       // it has both positive and negative samples
  };
  std::vector<Area> areas(std::span<const double> sums) const;
  std::vector<Area> binned_areas(std::span<const double> sums) const;

  AurocOptions options_;
};

}  // namespace kindling
