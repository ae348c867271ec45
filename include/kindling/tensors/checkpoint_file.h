#pragma once

#include <filesystem>

#include "kindling/base/export.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// A checkpoint is a safetensors file with checksums (docs/reference/checkpoint_format.md), so damage does not
// go unnoticed. All functions throw CheckpointError.

// Saves a checkpoint, durably when it returns; until then an existing file is unchanged. Tensors on the CPU
// are written directly from their memory; those on a device are copied one by one. `state` may have any names
// and texts; "format_version" is added.
KINDLING_API void save_checkpoint(const StateDict& state, const std::filesystem::path& path);

// Loads a checkpoint to the CPU. `path` is a file, or a directory of checkpoints
// (ModelCheckpointOptions::dirpath) of which the latest valid one is read; a corrupt one is skipped with a
// warning.
KINDLING_API StateDict load_checkpoint(const std::filesystem::path& path);

// Loads the weights that validation measured: the averages (EMA, SWA) of a run that validates them, else the
// model's own. `monitor.value` and FitResult::best_checkpoint refer to these weights. `path` as for
// load_checkpoint(). Throws CheckpointError for a file that is not a checkpoint and, as load_state_dict()
// does, for names and shapes that differ; the model is then unchanged.
KINDLING_API LoadReport load_validated_weights(torch::nn::Module& module, const std::filesystem::path& path);

}  // namespace kindling
