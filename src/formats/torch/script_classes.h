#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "formats/torch/torch_container.h"

namespace kindling {

// What the source code of a TorchScript archive says about a class.
struct ScriptClass {
  bool is_module = false;
  std::vector<std::string> parameters{}, buffers{};  // names of attributes
};

// The classes of a TorchScript archive, whose code is searched as text for three lines:
//   class Linear(Module):
//     __parameters__ = ["weight", "bias", ]
//     __buffers__ = []
class ScriptClasses {
 public:
  // `file` must outlive it.
  explicit ScriptClasses(const TorchContainer& file) : file_(file) {}

  // Throws CheckpointError if the archive has no code for the class.
  const ScriptClass& find(std::string_view module, std::string_view name);

 private:
  const TorchContainer& file_;
  std::map<std::string, std::map<std::string, ScriptClass, std::less<>>, std::less<>> modules_;
};

}  // namespace kindling
