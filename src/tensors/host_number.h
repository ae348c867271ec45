#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DynamicCast.h>

namespace kindling {

// Returns the element of a tensor in host memory, without item(), which a step must not call.
template <class Number = double>
Number host_number(const at::Tensor& value) {
  return c10::fetch_and_cast<Number>(value.scalar_type(), value.const_data_ptr());
}

}  // namespace kindling
