#pragma once

#include <string>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/metrics/metric.h"

namespace kindling {

struct R2Options {
  std::string average = "uniform";
  bool ignore_missing = false;

  static constexpr auto fields = kindling::fields(
      kindling::field("average", &R2Options::average,
                      {.doc = "how several outputs are combined", .choices = "uniform|per_output"}),
      kindling::field("ignore_missing", &R2Options::ignore_missing,
                      {.doc = "labels that are NaN, missing values, do not count"}));
};

// The coefficient of determination, 1 − Σ (label − output)² / Σ (label − mean label)², of each output: 1 for
// perfect outputs, 0 for outputs that are not better than the mean. Outputs [batch, …] are floating-point,
// labels are numbers of the same shape. For several outputs per sample it is their mean, or (per_output)
// NAME[0], NAME[1], …. The results match sklearn.metrics.r2_score, also with weights and with constant labels
// (1 or 0), and are bit-identical for every division of the samples into batches. NaN for fewer than two
// samples. With ignore_missing, labels that are NaN do not count: each output has its own samples, the mean
// is over the outputs that have two or more, and per_output gives NaN for the others.
class KINDLING_API R2 : public Metric {
 public:
  // Throws ConfigError.
  explicit R2(R2Options options = {});

  // Returns float64 [12, 3·outputs + 1], with ignore_missing [12, 5·outputs]. Throws DataError for shapes and
  // dtypes that do not match: nothing is broadcast.
  at::Tensor update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                             const at::Tensor& weights) const override;
  double compute(std::span<const double> sums, double num_samples) const override;  // per_output: the mean
  NamedValues values(std::span<const double> sums, double num_samples) const override;

 private:
  R2Options options_;
};

}  // namespace kindling
