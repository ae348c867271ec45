#pragma once

#include <cstdint>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/metrics/metric.h"

namespace kindling {

struct ConfusionMatrixOptions {
  std::int64_t ignore_index = -100;

  static constexpr auto fields = kindling::fields(kindling::field(
      "ignore_index", &ConfusionMatrixOptions::ignore_index, {.doc = "label that is not counted"}));
};

// How often (with weights: with what weight) a label was given which answer: NAME[label][answer], counts of
// samples, pixels or tokens. Outputs and labels are those of ClassScore; the numbers are those of
// sklearn.metrics.confusion_matrix. Equal to the bit however the samples come in batches.
class KINDLING_API ConfusionMatrix : public Metric {
 public:
  explicit ConfusionMatrix(ConfusionMatrixOptions options = {}) : options_(options) {}

  // Float64 [3, (classes + 2)·classes]. Throws DataError for shapes and dtypes that do not fit.
  at::Tensor update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                             const at::Tensor& weights) const override;
  // Both throw DataError where a label was no class.
  double compute(std::span<const double> sums, double num_samples) const override;  // share of right answers
  NamedValues values(std::span<const double> sums, double num_samples) const override;

 private:
  std::vector<double> cells(std::span<const double> sums, std::size_t& num_classes) const;

  ConfusionMatrixOptions options_;
};

}  // namespace kindling
