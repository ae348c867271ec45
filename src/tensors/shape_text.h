#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "base/joined.h"

namespace kindling {

// "[2, 3]", for errors.
inline std::string shape_text(const at::Tensor& tensor) {
  return shape_text(std::span<const std::int64_t>(tensor.sizes()));
}

}  // namespace kindling
