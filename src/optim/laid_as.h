#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>

namespace kindling {

// Whether numbers of the same place in both are the same number of steps from the first one in memory, which
// is how fused operators take them.
inline bool lies_as(const at::Tensor& parameter, const at::Tensor& other) {
  return (other.is_contiguous() && parameter.is_contiguous()) || other.strides() == parameter.strides();
}

// The same numbers, in memory as the parameter's are: the very tensor where they lie so, and where it has
// another shape.
inline at::Tensor laid_as(const at::Tensor& parameter, const at::Tensor& values) {
  if (values.layout() != at::kStrided || values.sizes() != parameter.sizes() || lies_as(parameter, values))
    return values;
  return at::empty_strided(values.sizes(), parameter.strides(), values.options()).copy_(values);
}

}  // namespace kindling
