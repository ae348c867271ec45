#pragma once

#include <ATen/core/Tensor.h>

#include <mutex>
#include <utility>
#include <vector>

namespace kindling {

// A tensor that transforms use on the device of the batch. Each device gets one copy, when it is first used.
// Usable from several threads.
class DeviceConstant {
 public:
  explicit DeviceConstant(at::Tensor on_host) : copies_{std::move(on_host)} {}

  // Returns the tensor on the device. Only the first call for a device copies.
  at::Tensor on(at::Device device) const {
    const std::lock_guard lock(mutex_);
    for (const at::Tensor& copy : copies_)
      if (copy.device() == device) return copy;
    return copies_.emplace_back(copies_.front().to(device));
  }

 private:
  mutable std::mutex mutex_;
  mutable std::vector<at::Tensor> copies_;
};

}  // namespace kindling
