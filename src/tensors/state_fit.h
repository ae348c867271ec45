#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "kindling/tensors/lazy.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// Returns the name in the module of a parameter of one of its layers.
inline std::string in_layer(const std::string& layer, const std::string& parameter) {
  return layer.empty() ? parameter : layer + "." + parameter;
}
// Returns all lazy layers, by their names.
std::vector<std::pair<std::string, LazyLayer*>> lazy_layers(torch::nn::Module& module);
// Returns the layers without parameters, by the future name of their weight.
std::vector<std::pair<std::string, LazyLayer*>> layers_without_shape(torch::nn::Module& module);

// Which values each of the module's own tensors gets.
struct StateFit {
  struct Target {
    std::string name;
    at::Tensor tensor;
    std::size_t value;  // index among the values
  };
  std::vector<Target> targets;
  LoadReport report;
};

// Changes only lazy layers, which take the shape of matching values. Uses only names and shapes of the
// values, which may be on the meta device. Those from `num_required` on need not be in the module. Throws
// CheckpointError as load_state_dict does; then nothing has changed.
StateFit fit_state(torch::nn::Module& module, const StateDict& values, const LoadOptions& options,
                   const std::string& place, std::size_t num_required);

}  // namespace kindling
