#pragma once

#include <ATen/core/Tensor.h>

namespace kindling {

// What regressions' metrics add up: numbers of a batch, one row per sample.
struct RegressionPair {
  at::Tensor outputs, labels;  // float64 [batch, numbers]
  at::Tensor weights;          // float64 [batch], ones where there are none
};

// Throws DataError for outputs and labels of different shapes and for what is no number.
RegressionPair regression_pair(const char* place, const at::Tensor& outputs, const at::Tensor& labels,
                               const at::Tensor& weights);

}  // namespace kindling
