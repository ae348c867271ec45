#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/device/device.h"

namespace torch::nn {
class Module;
}

namespace kindling {

// Named tensors (parameters, then buffers, in the order of registration) with Python's names: `net.1.weight`.
// The tensors are the module's own, no copies.
struct KINDLING_API StateDict {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  std::map<std::string, std::string> metadata;  // small values that are saved beside the tensors

  const at::Tensor* find(const std::string& name) const;  // nullptr: not there
};

// With copies of the tensors, always; those that are on a device come over one by one.
KINDLING_API StateDict copy_to(const StateDict& state, Device device);

// Those of a module.
KINDLING_API StateDict state_dict(const torch::nn::Module& module);

// Writes the values into the module's own parameters and buffers, which stay where they are and keep their
// dtype. Lazy layers take their shape from the values and are made on the CPU. Throws CheckpointError that
// lists every missing name, unexpected name and wrong shape (then nothing has been changed).
KINDLING_API void load_state_dict(torch::nn::Module& module, const StateDict& state,
                                  const std::string& place = "state_dict");

// The same from a safetensors file, straight to where the parameters are: no more than one tensor is held in
// host memory on the way, and none when it is read into a parameter on the CPU. Everything is checked before
// the first write; only a disk that fails in between leaves the model half loaded. Throws CheckpointError.
KINDLING_API void load_weights(torch::nn::Module& module, const std::filesystem::path& path);

// safetensors files, readable by Python's `safetensors`. Tensors of any device and layout are written; they
// are read to the CPU. Both throw CheckpointError; a file that exists is replaced atomically.
KINDLING_API void save_safetensors(const StateDict& state, const std::filesystem::path& path);
KINDLING_API StateDict load_safetensors(const std::filesystem::path& path);

}  // namespace kindling
