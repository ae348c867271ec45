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
      kindling::field("ignore_index", &TopKOptions::ignore_index, {.doc = "label that is not counted"}));
};

// The share of labels that are among the k largest outputs; with weights, their share of the weight. Outputs
// and labels are those of ClassScore, with at least k classes. Of equal outputs it is
// open which are the larger. The numbers are those of sklearn.metrics.top_k_accuracy_score. With k = 1 an
// accuracy that knows weights and an ignored class. Equal to the bit however the samples come in batches.
class KINDLING_API TopK : public Metric {
 public:
  // Throws ConfigError.
  explicit TopK(TopKOptions options = {});

  // Float64 [3, 4]. Throws DataError for shapes and dtypes that do not fit, and fewer than k classes.
  at::Tensor update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                             const at::Tensor& weights) const override;
  // Throws DataError where a label was no class.
  double compute(std::span<const double> sums, double num_samples) const override;

 private:
  TopKOptions options_;
};

}  // namespace kindling
