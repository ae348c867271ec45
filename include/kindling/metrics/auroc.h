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
      kindling::field("ignore_index", &AurocOptions::ignore_index, {.doc = "label that is not counted"}));
};

// The area under the receiver operating characteristic of each class against all others: how probable it is
// that a sample of the class scores higher than one of another class, where equals count as half.
//
// Binned: scores are told apart by `num_thresholds` of them, the probabilities 1 / (1 + exp(−z)) with z in
// equal steps from −20 to 20. A class's score is its probability, the softmax of the logits (for one logit
// per label its sigmoid). The steps are fine where the probabilities of a confident model are, close to 0 and
// to 1; what lies between the same two thresholds counts as equal,
// and a score that is NaN as the lowest. So an epoch is counts of a fixed size,
// whatever its length; torchmetrics gives the same number for `thresholds=` that list between 0 and 1. From
// the exact area it differs by at most half of Σ p·n over the bins, p and n the shares of the positive and
// the negative samples in a bin.
//
//   macro      mean over the classes that have samples and are not all there is; NaN where there is none
//   weighted   the same, by how often a class is the label
//   per_class  a number for each, as NAME[0], NAME[1], …
// Outputs, labels and weights are those of ClassScore. Equal to the bit however the samples come in batches.
class KINDLING_API Auroc : public Metric {
 public:
  // Throws ConfigError.
  explicit Auroc(AurocOptions options = {});

  // Float64 [3, 2·classes·(num_thresholds + 1) + 2], one class where there is one logit. Throws DataError
  // for shapes and dtypes that do not fit.
  at::Tensor update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                             const at::Tensor& weights) const override;
  // Both throw DataError where a label was no class.
  double compute(std::span<const double> sums, double num_samples) const override;  // per_class: macro
  NamedValues values(std::span<const double> sums, double num_samples) const override;

 private:
  struct Area {
    double value, weight;  // of its class: NaN and the positive samples' weight
  };
  std::vector<Area> areas(std::span<const double> sums) const;

  AurocOptions options_;
};

}  // namespace kindling
