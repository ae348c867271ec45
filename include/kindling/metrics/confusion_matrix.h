#pragma once

#include <cstdint>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/metrics/metric.h"

namespace kindling {

struct ConfusionMatrixOptions {
  std::int64_t ignore_index = -100;

  static constexpr auto fields =
      kindling::fields(kindling::field("ignore_index", &ConfusionMatrixOptions::ignore_index,
                                       {.doc = "label that is not counted", .example = "-100"}));
};

// How often (or, with weights, with what total weight) each prediction was made for each label:
// NAME[label][prediction], counted in samples, pixels or tokens. Outputs and labels have the forms that
// ClassScore accepts. The results match sklearn.metrics.confusion_matrix and are bit-identical for every
// division of the samples into batches.
class KINDLING_API ConfusionMatrix : public Metric {
 public:
  explicit ConfusionMatrix(ConfusionMatrixOptions options = {}) : options_(options) {}

  // Returns float64 [3, (classes + 2)·(classes + 1)]. Throws DataError for shapes and dtypes that do not
  // match.
  at::Tensor update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                             const at::Tensor& weights) const override;
  at::Tensor num_without_class(const at::Tensor& outputs, const at::Tensor& labels) const override;
  // Both throw DataError if a label was not a class.
  double compute(std::span<const double> sums, double num_samples) const override;
  NamedValues values(std::span<const double> sums, double num_samples) const override;

 private:
  std::vector<double> cells(std::span<const double> sums, std::size_t& num_classes) const;

  ConfusionMatrixOptions options_;
};

}  // namespace kindling
