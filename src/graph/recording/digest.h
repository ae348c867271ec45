#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace kindling {

// Returns digests of type, shape and all bits of tensors; two different tensors have equal digests with a
// chance of 2⁻⁶⁴. Comparing copies instead would take as much memory again.
inline std::vector<std::size_t> digests(const std::vector<at::Tensor>& tensors) {
  const auto digest = [](const void* data, std::size_t num_bytes) {
    return std::hash<std::string_view>()({static_cast<const char*>(data), num_bytes});
  };
  std::vector<std::size_t> digests;
  for (const at::Tensor& tensor : tensors) {
    digests.push_back(tensor.defined() ? static_cast<std::size_t>(tensor.scalar_type()) + 1 : 0);
    if (!tensor.defined()) continue;
    const at::Tensor values = tensor.contiguous();
    digests.push_back(digest(values.sizes().data(), values.sizes().size() * sizeof(std::int64_t)));
    digests.push_back(digest(values.const_data_ptr(), values.nbytes()));
  }
  return digests;
}

}  // namespace kindling
