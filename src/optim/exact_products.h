#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>

namespace kindling {

inline bool is_of_16_bits(const at::Tensor& tensor) {
  return at::isReducedFloatingType(tensor.scalar_type());
}

// Multiplies tensors by a number. The products of 16-bit tensors are computed in float32, as on CUDA:
// LibTorch's in-place operators on the CPU round a number to the type of their tensor first, and a factor
// such as 0.999 then is 1.
inline void scale_exactly(at::TensorList tensors, double factor) {
  const bool would_round = !tensors.front().is_cuda() && std::ranges::any_of(tensors, is_of_16_bits);
  if (would_round)
    at::_foreach_mul_(tensors, at::scalar_tensor(factor, at::dtype(at::kDouble)));
  else
    at::_foreach_mul_(tensors, factor);
}

}  // namespace kindling
