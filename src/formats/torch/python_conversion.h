#pragma once

#include <string>

#include "formats/torch/pickle.h"

namespace kindling {

// How Python reaches a state dict: `suffix` follows torch.load(…), such as ["model"].state_dict().
struct PythonSource {
  std::string suffix{};
  bool runs_code = false;  // torch.load needs weights_only=False
};

// Returns Python code, in a line to paste, that converts the tensors that Kindling cannot read to
// safetensors.
std::string conversion_in_python(const std::string& place, const PythonSource& source = {});

// Returns a key as messages show it.
std::string quoted_key(std::string_view key);

inline const std::string kDamagedTorchFile = "the file is damaged: copy it again, or save it again";

}  // namespace kindling
