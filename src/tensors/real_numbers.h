#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/view_as_real.h>

namespace kindling {

// Returns a complex tensor as pairs of real numbers, [..., 2], as PyTorch's optimizers see it, and any other
// tensor itself. The result shares the tensor's memory, unless that contains the conjugate: then it is a
// copy.
inline at::Tensor as_real_pairs(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor.resolve_conj()) : tensor;
}

// As as_real_pairs(), but always in the tensor's memory. The imaginary parts are negated if that contains the
// conjugate, which makes no difference to sizes of numbers, and to multiplying by real ones.
inline at::Tensor numbers_in_memory(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor.is_conj() ? tensor.conj() : tensor) : tensor;
}

}  // namespace kindling
