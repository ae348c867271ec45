#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "base/joined.h"

namespace kindling {

// For errors: "[2, 3]", "Float [2, 3]".
inline std::string shape_text(const at::Tensor& tensor) {
  return shape_text(std::span<const std::int64_t>(tensor.sizes()));
}
inline std::string type_text(const at::Tensor& tensor) {
  return c10::toString(tensor.scalar_type()) + (" " + shape_text(tensor));
}

}  // namespace kindling
