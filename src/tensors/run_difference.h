#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// How much two runs of the same step may differ if kernels sum in a varying order.
struct RunTolerance {
  double relative = 0;  // to the largest number of the tensor; 0: bit-identical
  // For gradients also relative to the largest number of all gradients: a gradient that consists of rounding
  // errors, such as that of a bias before batch norm, has no scale of its own.
  double of_all = 0;
};

// Returns the tolerance for runs of this precision (TrainerOptions); `shortens_products`: matmuls round
// float32 to fewer digits. Float32 sums in another order differ in their last digits, and this rounding
// amplifies the difference.
RunTolerance tolerance_of(std::string_view precision, bool shortens_products = false);

// Returns a bool on the device: true if some tensor differs from its counterpart in the type, shape and
// location that they share. At least one must have elements.
at::Tensor differ(const std::vector<at::Tensor>& ones, const std::vector<at::Tensor>& others,
                  const std::vector<bool>& are_gradients, RunTolerance tolerance);

// Returns the elements as integers, which are equal if the bits are.
KINDLING_API at::Tensor bits_of(const at::Tensor& tensor);

}  // namespace kindling
