#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <utility>
#include <vector>

namespace kindling {

// Gives the memory of tensors back the bytes that it has found there. In host memory what nobody has changed
// is not written; that of a device is copied there, and nobody waits.
class KeptValues {
 public:
  explicit KeptValues(const std::vector<at::Tensor>& tensors);
  ~KeptValues();
  KeptValues(const KeptValues&) = delete;
  KeptValues& operator=(const KeptValues&) = delete;

 private:
  std::vector<std::pair<c10::Storage, std::vector<char>>> on_host_;
  std::vector<std::pair<at::Tensor, at::Tensor>> on_device_;  // bytes, and a copy of them
};

}  // namespace kindling
