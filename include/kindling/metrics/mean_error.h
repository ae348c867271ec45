#pragma once

#include <string>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/metrics/metric.h"

namespace kindling {

struct MeanErrorOptions {
  std::string error = "mse";
  bool ignore_missing = false;

  static constexpr auto fields = kindling::fields(
      kindling::field(
          "error", &MeanErrorOptions::error,
          {.doc = "mean absolute, mean squared, or root mean squared error", .choices = "mae|mse|rmse"}),
      kindling::field("ignore_missing", &MeanErrorOptions::ignore_missing,
                      {.doc = "labels that are NaN, missing values, do not count"}));
};

// The mean of |outputs − labels| or of its square over all numbers of an epoch, or the root of the latter;
// with weights, each error counts with the weight of its sample. Outputs are floating-point, labels are
// numbers of the same shape [batch, …]. The results match torchmetrics, computed in double precision (the
// mean of each sample is then rounded to float32), and are bit-identical for every division of the samples
// into batches. NaN if an error is not finite. With ignore_missing, labels that are NaN do not count, and the
// mean is over the others.
class KINDLING_API MeanError : public Metric {
 public:
  // Throws ConfigError.
  explicit MeanError(MeanErrorOptions options = {});

  // Returns float64 [12, 2]. Throws DataError for shapes and dtypes that do not match: nothing is broadcast.
  at::Tensor update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                             const at::Tensor& weights) const override;
  double compute(std::span<const double> sums, double num_samples) const override;

 private:
  MeanErrorOptions options_;
};

}  // namespace kindling
