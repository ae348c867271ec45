#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/metrics/metric.h"

namespace kindling {

struct AurocOptions {
  std::string average = "macro";
  std::int64_t num_thresholds = 1001;
  std::int64_t ignore_index = -100;

  static constexpr auto fields = kindling::fields(
      kindling::field(
          "average", &AurocOptions::average,
          {.doc = "how the values of the classes are combined", .choices = "macro|weighted|per_class"}),
      kindling::field("num_thresholds", &AurocOptions::num_thresholds,
                      {.doc = "number of thresholds at which scores are binned", .min = 2, .max = 1e6}),
      kindling::field("ignore_index", &AurocOptions::ignore_index,
                      {.doc = "label that is not counted", .example = "-100"}));
};

// The area under the receiver operating characteristic of each class against all others: the probability that
// a sample of the class scores higher than one of another class, where ties count as half.
//
// The computation is binned: `num_thresholds` thresholds separate the scores. They are the probabilities 1 /
// (1 + exp(−z)) with z in equal steps from −20 to 20. A class's score is its probability, the softmax of the
// logits (the sigmoid for one logit per label). The steps are fine close to 0 and to 1, where the
// probabilities of a confident model are. Scores between the same two thresholds count as equal, and NaN as
// the lowest score. So an epoch needs counts of a fixed size, whatever its length. torchmetrics returns the
// same number for `thresholds=` set to that list between 0 and 1. The result differs from the exact area by
// at most half of Σ p·n over the bins, where p and n are the fractions of the positive and the negative
// samples in a bin.
//
//   macro      mean over the classes that have both positive and negative samples; NaN if there is none
//   weighted   the same, weighted by how often a class is the label
//   per_class  a number for each, as NAME[0], NAME[1], …
// Outputs, labels and weights have the forms that ClassScore accepts. The result is bit-identical for every
// division of the samples into batches.
class KINDLING_API Auroc : public Metric {
 public:
  // Throws ConfigError.
  explicit Auroc(AurocOptions options = {});

  // Returns float64 [3, 2·classes·(num_thresholds + 1) + 2]; one logit counts as one class. Throws DataError
  // for shapes and dtypes that do not match.
  at::Tensor update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                             const at::Tensor& weights) const override;
  // Both throw DataError if a label was not a class.
  double compute(std::span<const double> sums, double num_samples) const override;  // per_class: macro
  NamedValues values(std::span<const double> sums, double num_samples) const override;

 private:
  struct Area {
    double value, weight;  // of a class: NaN if undefined, and the weight of its positive samples
  };
  std::vector<Area> areas(std::span<const double> sums) const;

  AurocOptions options_;
};

}  // namespace kindling
