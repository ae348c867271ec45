#pragma once

#include <cstdint>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/metrics/metric.h"

namespace kindling {

struct PerplexityOptions {
  std::int64_t ignore_index = -100;
  bool classes_last = false;  // outputs are [batch, …, classes], as sequence models return them

  static constexpr auto fields = kindling::fields(
      kindling::field("ignore_index", &PerplexityOptions::ignore_index,
                      {.doc = "label that is not counted, such as padding", .example = "-100"}),
      kindling::field("classes_last", &PerplexityOptions::classes_last,
                      {.doc = "outputs are [batch, ..., classes] instead of [batch, classes, ...]"}));
};

// exp of the mean of −log p(label) over all labels (tokens) of an epoch: the number of equally probable
// classes that would be equally uncertain. Outputs are logits [batch, classes, …], or with classes_last
// [batch, …, classes] as in torchmetrics; labels are class numbers [batch, …] of an integral type; weights as
// in ClassScore. The result matches torchmetrics and is bit-identical for every division of the samples into
// batches.
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
