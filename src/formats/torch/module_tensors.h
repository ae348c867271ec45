#pragma once

#include <string>
#include <vector>

#include "formats/torch/torch_container.h"

namespace kindling {

// A tensor of a state dict, by its name.
struct NamedTensor {
  std::string name{};
  PickleValue::Place tensor = 0;
};

// Whole modules in a pickle: objects of torch.save(model, path), which have the dicts _parameters, _buffers
// and _modules, and those of TorchScript archives.
class ModuleTensors {
 public:
  // `file` must outlive it.
  explicit ModuleTensors(const TorchContainer& file);

  bool is_module(PickleValue::Place place) const;
  // Returns what state_dict() of a module returns in Python, unless the module's class has changed that.
  // Throws CheckpointError for a parameter or buffer that is not a tensor, and for attributes with quantized
  // and other tensors that a state dict does not have.
  std::vector<NamedTensor> of(PickleValue::Place module) const;

 private:
  class Walk;

  bool is_script_module(PickleValue::Place place) const;

  const TorchContainer& file_;
};

}  // namespace kindling
