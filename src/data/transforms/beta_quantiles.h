#pragma once

#include <ATen/core/Tensor.h>

#include "data/transforms/device_constant.h"

namespace kindling {

// The inverse of the distribution function of Beta(alpha, alpha), by which uniform random numbers become such
// ones: a table of 4,097 points, linear in between. For alpha = 1, the numbers themselves.
class BetaQuantiles {
 public:
  explicit BetaQuantiles(double alpha);

  // Returns numbers in [0, 1] of the shape and dtype of `uniforms`.
  at::Tensor operator()(const at::Tensor& uniforms) const;

 private:
  bool is_uniform_;
  DeviceConstant table_;  // double [4097]
};

}  // namespace kindling
