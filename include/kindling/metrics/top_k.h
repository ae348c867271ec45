#pragma once

#include <cstdint>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/metrics/metric.h"

namespace kindling {

struct TopKOptions {
  std::int64_t k = 5;
  std::int64_t ignore_index = -100;

  static constexpr auto fields = kindling::fields(
      kindling::field("k", &TopKOptions::k,
                      {.doc = "number of largest outputs among which the label must be", .min = 1}),
      kindling::field("ignore_index", &TopKOptions::ignore_index,
                      {.doc = "label that is not counted", .example = "-100"}));
};

// The fraction of labels that are among the k largest outputs; with weights, the fraction of the weight.
// Outputs and labels have the forms that ClassScore accepts, with at least k classes. Of equal
// outputs, the one of the higher class number counts as larger, as in sklearn.metrics.top_k_accuracy_score,
// whose results it matches (accuracy, like argmax, takes the lower one). The results are bit-identical for
// every division of the samples into batches. With k = 1 it is an accuracy that supports weights and an
// ignored class.
class KINDLING_API TopK : public Metric {
 public:
  // Throws ConfigError.
  explicit TopK(TopKOptions options = {});

  // Returns float64 [3, 4]. Throws DataError for shapes and dtypes that do not match, and for fewer than k
  // classes.
  at::Tensor update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                             const at::Tensor& weights) const override;
  at::Tensor num_without_class(const at::Tensor& outputs, const at::Tensor& labels) const override;
  // Throws DataError if a label was not a class.
  double compute(std::span<const double> sums, double num_samples) const override;

 private:
  TopKOptions options_;
};

}  // namespace kindling
