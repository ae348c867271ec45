#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace kindling {

// The sums of a class from which its area under the ROC curve follows, see area_sums().
struct AreaSums {
  double twice_won;  // twice the pairs of a positive and a lower negative sample; equal ones count once
  double positive, negative, nan;
  static constexpr std::int64_t kCount = 4;
};

// `samples`: float32 or float64, a row per sample: the outputs (a logit for each class, or one for two
// classes) and the code of the label (see ClassAnswers), [n, outputs + 1]; with weights [n, 1, outputs + 2],
// the weight last. A row whose label is NaN does not count. Returns float64 [outputs·4 + 1] on the same
// device: the AreaSums of each output's class, and the number of labels that are not classes. On a device
// nothing waits.
//
// The score of a class is its logarithmic odds against all others, which orders samples as the softmax does,
// but does not saturate. Rows with the same logits have the same score, also if the other classes swap
// theirs.
at::Tensor area_sums(const at::Tensor& samples);

}  // namespace kindling
