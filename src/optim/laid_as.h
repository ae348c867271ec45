#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>

namespace kindling {

// True if corresponding elements of both have the same memory offset, as fused operators assume.
inline bool lies_as(const at::Tensor& parameter, const at::Tensor& other) {
  return (other.is_contiguous() && parameter.is_contiguous()) || other.strides() == parameter.strides();
}

// Returns the values in the parameter's memory layout: the same tensor if it has that layout already, or if
// it has another shape.
inline at::Tensor laid_as(const at::Tensor& parameter, const at::Tensor& values) {
  if (values.layout() != at::kStrided || values.sizes() != parameter.sizes() || lies_as(parameter, values))
    return values;
  return at::empty_strided(values.sizes(), parameter.strides(), values.options()).copy_(values);
}

}  // namespace kindling
