#pragma once

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_like.h>

#include <vector>

namespace kindling {

// A replacement for _foreach_clone, which LibTorch 2.11 does not have.
inline std::vector<at::Tensor> foreach_copies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  copies.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) copies.push_back(at::empty_like(tensor));
  if (!copies.empty()) at::_foreach_copy_(copies, tensors);
  return copies;
}

}  // namespace kindling
