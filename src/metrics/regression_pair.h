#pragma once

#include <ATen/core/Tensor.h>

namespace kindling {

// The numbers of a batch that regression metrics sum, one row per sample.
struct RegressionPair {
  at::Tensor outputs, labels;  // float64 [batch, numbers]
  at::Tensor weights;          // float64 [batch], ones if there are none
};

// Throws DataError for outputs and labels of different shapes or non-numeric dtypes.
RegressionPair regression_pair(const char* place, const at::Tensor& outputs, const at::Tensor& labels,
                               const at::Tensor& weights);

}  // namespace kindling
