#pragma once

#include <string>

namespace torch::nn {
class Module;
}

namespace kindling {

// Returns the type of a layer for display: "Linear" for kindling::LazyLinearImpl, and for an
// ActivationCheckpoint of it.
std::string layer_name(const torch::nn::Module& layer);

}  // namespace kindling
