#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "kindling/base/export.h"

namespace torch::nn {
class Module;
}

namespace kindling {

// Single parameters and buffers by name (`net.1.weight`), wherever they are. The transfers are counted. Both
// throw Error for a name that the module does not have, with the nearest one. All of them at once:
// state_dict, load_state_dict, load_weights.

// A copy of the values on the CPU.
KINDLING_API at::Tensor get_parameter(const torch::nn::Module& module, const std::string& name);

// Writes the values, from any device and of any dtype, into the parameter, which keeps its place, device,
// dtype and requires_grad. The weight of a lazy layer gives the layer its shape, on the CPU. Throws Error for
// another shape; then nothing has been changed.
KINDLING_API void set_parameter(torch::nn::Module& module, const std::string& name, const at::Tensor& values);

}  // namespace kindling
