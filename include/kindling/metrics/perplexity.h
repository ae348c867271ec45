#pragma once

#include <cstdint>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/metrics/metric.h"

namespace kindling {

struct PerplexityOptions {
  std::int64_t ignore_index = -100;

  static constexpr auto fields =
      kindling::fields(kindling::field("ignore_index", &PerplexityOptions::ignore_index,
                                       {.doc = "label that is not counted, such as padding"}));
};

// exp of the mean of −log p(label) over all labels (tokens) of an epoch: the number of equally probable
// classes that would be equally uncertain. Outputs are logits [batch, classes, …], labels are class numbers
// [batch, …] of an integral type; weights as in ClassScore. The result matches torchmetrics (whose outputs
// are [batch, tokens, classes]) and is bit-identical for every division of the samples into batches.
class KINDLING_API Perplexity : public Metric {
 public:
  explicit Perplexity(PerplexityOptions options = {}) : options_(options) {}

  // Returns float64 [12, 3]. Throws DataError for shapes and dtypes that do not match.
  at::Tensor update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                             const at::Tensor& weights) const override;
  // Throws DataError if a label was not a class.
  double compute(std::span<const double> sums, double num_samples) const override;

 private:
  PerplexityOptions options_;
};

}  // namespace kindling
