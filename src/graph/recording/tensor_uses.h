#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

namespace kindling {

// Returns the number of owners of a tensor and of its memory.
inline std::size_t num_uses(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.use_count() + tensor.storage().use_count() : 0;
}

}  // namespace kindling
