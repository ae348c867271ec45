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

// exp of the mean of −log p(label) over all labels of an epoch, tokens one by one: as many equally probable
// classes would be as hard to tell. Outputs are logits [batch, classes, …], labels class numbers [batch, …]
// of an integral type; weights as of ClassScore. The number is torchmetrics' (whose outputs are [batch,
// tokens, classes]). Equal to the bit however the samples come in batches.
class KINDLING_API Perplexity : public Metric {
 public:
  explicit Perplexity(PerplexityOptions options = {}) : options_(options) {}

  // Float64 [12, 3]. Throws DataError for shapes and dtypes that do not fit.
  at::Tensor update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                             const at::Tensor& weights) const override;
  // Throws DataError where a label was no class.
  double compute(std::span<const double> sums, double num_samples) const override;

 private:
  PerplexityOptions options_;
};

}  // namespace kindling
