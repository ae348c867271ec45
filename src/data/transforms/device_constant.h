#pragma once

#include <ATen/core/Tensor.h>

#include <mutex>
#include <utility>
#include <vector>

namespace kindling {

// A tensor that transforms use on the device and in the dtype of the batch. Each device and dtype gets one
// copy, when it is first used. Usable from several threads.
class DeviceConstant {
 public:
  explicit DeviceConstant(at::Tensor on_host) : copies_{std::move(on_host)} {}

  // Returns the tensor on the device and in the dtype of `other`. Only the first call for them copies.
  at::Tensor like(const at::Tensor& other) const {
    const std::lock_guard lock(mutex_);
    for (const at::Tensor& copy : copies_)
      if (copy.device() == other.device() && copy.scalar_type() == other.scalar_type()) return copy;
    return copies_.emplace_back(copies_.front().to(other.device(), other.scalar_type()));
  }

 private:
  mutable std::mutex mutex_;
  mutable std::vector<at::Tensor> copies_;
};

}  // namespace kindling
