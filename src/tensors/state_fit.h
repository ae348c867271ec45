#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kindling/tensors/lazy.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// Layers without parameters, by the name that their weight will have.
std::vector<std::pair<std::string, LazyLayer*>> layers_without_shape(torch::nn::Module& module);

// The module's own tensors, for which `values` are of the right names and shapes; lazy layers have taken
// theirs. Of the values only names and shapes are looked at: they may be on the meta device. Throws
// CheckpointError that lists every misfit; then nothing has been changed.
StateDict fitted_state(torch::nn::Module& module, const StateDict& values, const std::string& place);

}  // namespace kindling
