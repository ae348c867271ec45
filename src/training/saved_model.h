#pragma once

#include <memory>
#include <vector>

#include "kindling/nn/module.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/callback.h"

namespace kindling {

// The model's part of a saved training: its own weights, also while an average has their place, what of it is
// frozen, and which lazy layers have no shape yet.
void save_model(Module& model, const std::vector<std::shared_ptr<Callback>>& callbacks, StateDict& state);
// Throws CheckpointError for weights that do not fit.
void load_model(Module& model, const StateDict& state);

}  // namespace kindling
