#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "kindling/base/export.h"
#include "kindling/device/device.h"
#include "kindling/tensors/batch.h"

namespace torch::nn {
class Module;
}

namespace kindling {

// Copies between host and device made here are counted in transfer_counts(). A tensor that moves from pinned
// host memory is copied without making the host wait; do not change its bytes until the device's current
// stream has read them.

// Returns a copy in new memory, even on the same device. Autograd records the copy as it does Tensor::to.
KINDLING_API at::Tensor copy_to(const at::Tensor& tensor, Device device);
KINDLING_API Batch copy_to(const Batch& batch, Device device);
// Returns a deep copy of a module that derives from torch::nn::Cloneable (all layers of LibTorch,
// Sequential); throws Error for a module that cannot be cloned.
KINDLING_API std::shared_ptr<torch::nn::Module> copy_to(const torch::nn::Module& module, Device device);

// Returns the same tensor if it is on the device already, otherwise a copy there.
KINDLING_API at::Tensor move_to(const at::Tensor& tensor, Device device);
// Replaces the tensors that are not on the device yet; host leaves stay in host memory.
KINDLING_API Batch move_to(Batch batch, Device device);
// Replaces parameters and buffers inside the module, except those that are on the device already.
KINDLING_API void move_to(torch::nn::Module& module, Device device);

// Writes the values into a tensor of the same shape, which keeps its memory, device, dtype and requires_grad.
// Autograd does not see it.
KINDLING_API void write_values(const at::Tensor& target, const at::Tensor& values);

// Throws DeviceError that names both devices and a fix, unless a and b are on the same device.
KINDLING_API void require_same_device(const at::Tensor& a, const at::Tensor& b, const char* place);

}  // namespace kindling
