#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

namespace kindling {

// How far two runs of the same step may be apart where kernels add up in changing order.
struct RunTolerance {
  double relative = 0;  // to the largest number of the tensor; 0: to the bit
  // Of gradients also to the largest number of them all: one that is nothing but rounding, as that of a bias
  // before batch norm, has no size of its own.
  double of_all = 0;
};

// For trainings of this precision (TrainerOptions), and whether products round float32 to fewer digits. Sums
// of float32 in another order differ in their last digits, and by all that such rounding makes of those.
RunTolerance tolerance_of(std::string_view precision, bool shortens_products = false);

// A bool on the device: whether some tensor differs from its counterpart in type, shape and place the same.
// At least one must have elements.
at::Tensor differ(const std::vector<at::Tensor>& ones, const std::vector<at::Tensor>& others,
                  const std::vector<bool>& are_gradients, RunTolerance tolerance);

// The same elements as whole numbers, which are equal where the bits are.
at::Tensor bits_of(const at::Tensor& tensor);

}  // namespace kindling
