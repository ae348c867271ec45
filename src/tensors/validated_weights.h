#pragma once

#include <filesystem>

#include "kindling/base/export.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// Returns the weights that load_validated_weights() loads, by the model's names. Throws CheckpointError.
KINDLING_API StateDict validated_weights(const std::filesystem::path& path);

}  // namespace kindling
