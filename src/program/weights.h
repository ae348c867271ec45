#pragma once

#include <filesystem>

#include "kindling/nn/module.h"

namespace kindling {

// Loads what `path` means: a file of weights, a checkpoint, or the folder of a run (its weights.safetensors,
// or, of a run that has been killed, its latest checkpoint). Throws CheckpointError.
void load_weights_from(Module& model, const std::filesystem::path& path);

}  // namespace kindling
