#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/metrics/metric.h"

namespace kindling {

// The share of samples whose largest output stands at their label: outputs [batch, classes, …], labels
// [batch, …] (class numbers), or class probabilities of the outputs' shape, whose largest counts → float32
// scalar on the same device. Not differentiable; no host wait. Throws DataError for labels of another shape.
KINDLING_API at::Tensor accuracy(const at::Tensor& outputs, const at::Tensor& labels);

struct AccuracyOptions {
  std::optional<std::int64_t> ignore_index{};

  static constexpr auto fields =
      kindling::fields(kindling::field("ignore_index", &AccuracyOptions::ignore_index,
                                       {.doc = "label that is not counted; absent: all labels count"}));
};

// The same share over all samples of an epoch; with weights, the right answers' share of the weight. Without
// an ignore_index a label that is no class is a wrong answer, as one of -100 is.
//
// A batch without weights and without an ignore_index adds one number, which is its step's, too. Others add
// float64 [3, 4], equal to the bit however the samples come in batches; outputs and labels may then be all
// that those of ClassScore may be. An epoch has batches of one form: weights for all of them or for none.
class KINDLING_API Accuracy : public Metric {
 public:
  explicit Accuracy(AccuracyOptions options = {});

  at::Tensor update(const at::Tensor& outputs, const at::Tensor& labels) const override;
  at::Tensor update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                             const at::Tensor& weights) const override;
  // Throws DataError where there is an ignore_index and a label was no class.
  double compute(std::span<const double> sums, double num_samples) const override;

 private:
  AccuracyOptions options_;
};

}  // namespace kindling
