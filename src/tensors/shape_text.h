#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace kindling {

// For errors: "[2, 3]", "Float [2, 3]".
std::string shape_text(at::IntArrayRef sizes);
inline std::string shape_text(const at::Tensor& tensor) { return shape_text(tensor.sizes()); }
std::string type_text(const at::Tensor& tensor);

}  // namespace kindling
