#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "kindling/base/export.h"

namespace torch::nn {
class Module;
}

namespace kindling {

// Access to single parameters and buffers by name (`net.1.weight`), on any device. Transfers are counted.
// Both throw Error for an unknown name, with the nearest one. For all parameters at once see state_dict,
// load_state_dict, load_weights.

// Returns a copy of the values on the CPU.
KINDLING_API at::Tensor get_parameter(const torch::nn::Module& module, const std::string& name);

// Writes the values, from any device and of any dtype, into the parameter, which keeps its memory, device,
// dtype and requires_grad. The weight of a lazy layer determines the layer's shape, on the CPU. Throws Error
// for another shape; then nothing has been changed.
KINDLING_API void set_parameter(torch::nn::Module& module, const std::string& name, const at::Tensor& values);

}  // namespace kindling
