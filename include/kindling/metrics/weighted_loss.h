#pragma once

#include <ATen/core/Tensor.h>

namespace kindling {

// A loss that is a mean, and what it is a mean over. Means over several batches are then the means over all
// of their labels, however the batches are cut.
struct WeightedLoss {
  at::Tensor loss;  // one element
  // One element, at least 0, on any device: the number of labels that count, or the sum of their weights.
  // With 0 the loss may be NaN, and does not count. Undefined: the number of samples in the batch.
  at::Tensor weight{};
};

}  // namespace kindling
