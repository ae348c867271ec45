#pragma once

#include <filesystem>

#include "kindling/nn/module.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// Whether a file holds all of a training and not the model alone. Throws CheckpointError.
bool is_checkpoint(const std::filesystem::path& file);

// Loads what `path` means: a file of weights (.safetensors, .pt), a checkpoint, or the folder of a run (its
// weights.safetensors, or, of a run that has been killed, its latest checkpoint). Of a checkpoint whose
// validation has seen averages of the weights these are taken. `key` as in LoadOptions. Throws
// CheckpointError.
void load_weights_from(Module& model, const std::filesystem::path& path, const std::string& key = "");

// The model's tensors of what `path` means, by the model's names.
StateDict weights_from(const std::filesystem::path& path);

}  // namespace kindling
