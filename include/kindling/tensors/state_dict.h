#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kindling/base/export.h"

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

// Those of a module.
KINDLING_API StateDict state_dict(const torch::nn::Module& module);

// Writes the values into the module's own parameters and buffers, which stay where they are and keep their
// dtype. Lazy layers take their shape from the values. Throws CheckpointError that lists every missing name,
// unexpected name and wrong shape (then nothing has been changed).
KINDLING_API void load_state_dict(torch::nn::Module& module, const StateDict& state,
                                  const std::string& place = "state_dict");

// safetensors files, readable by Python's `safetensors`. Tensors of any device and layout are written; they
// are read to the CPU. Both throw CheckpointError; a file that exists is replaced atomically.
KINDLING_API void save_safetensors(const StateDict& state, const std::filesystem::path& path);
KINDLING_API StateDict load_safetensors(const std::filesystem::path& path);

}  // namespace kindling
