#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "kindling/tensors/lazy.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// Layers without parameters, by the name that their weight will have.
std::vector<std::pair<std::string, LazyLayer*>> layers_without_shape(torch::nn::Module& module);

// Which of the module's own tensors are to take which values.
struct StateFit {
  struct Target {
    std::string name;
    at::Tensor tensor;
    std::size_t value;  // place among the values
  };
  std::vector<Target> targets;
  LoadReport report;
};

// Nothing but lazy layers has changed afterwards: they have taken the shape of values that fit. Of the values
// only names and shapes are looked at: they may be on the meta device. Throws CheckpointError as
// load_state_dict does; then nothing has changed.
StateFit fit_state(torch::nn::Module& module, const StateDict& values, const LoadOptions& options,
                   const std::string& place);

}  // namespace kindling
