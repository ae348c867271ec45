#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace kindling {

// "[2, 3]", for errors.
std::string shape_text(const at::Tensor& tensor);

}  // namespace kindling
