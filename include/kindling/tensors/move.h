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
// host memory is copied without making the host wait; its bytes must stay as they are until the device's
// current stream has read them.

// Always new memory, also on the same device. The copy is part of autograd's graph as Tensor::to is.
KINDLING_API at::Tensor copy_to(const at::Tensor& tensor, Device device);
KINDLING_API Batch copy_to(const Batch& batch, Device device);
// A deep copy of a module that derives from torch::nn::Cloneable (all layers of LibTorch, Sequential); throws
// Error for a module that cannot be cloned.
KINDLING_API std::shared_ptr<torch::nn::Module> copy_to(const torch::nn::Module& module, Device device);

// The very same tensor when it is on the device already, else a copy there.
KINDLING_API at::Tensor move_to(const at::Tensor& tensor, Device device);
// Tensors that are there already stay, and so do host leaves; the others are replaced in the batch that is
// returned.
KINDLING_API Batch move_to(Batch batch, Device device);
// Parameters and buffers are replaced inside the module; those that are there already are left alone.
KINDLING_API void move_to(torch::nn::Module& module, Device device);

// Writes the values into a tensor of the same shape, which keeps its place, device, dtype and requires_grad.
// Autograd does not see it.
KINDLING_API void write_values(const at::Tensor& target, const at::Tensor& values);

// Throws DeviceError that names both devices and the remedy unless a and b are on the same device.
KINDLING_API void require_same_device(const at::Tensor& a, const at::Tensor& b, const char* place);

}  // namespace kindling
