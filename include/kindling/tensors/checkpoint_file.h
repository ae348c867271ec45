#pragma once

#include <filesystem>

#include "kindling/base/export.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// A checkpoint is a safetensors file with checksums (docs/reference/checkpoint_format.md): what is read is what was
// saved. All throw CheckpointError.

// Durable when it returns; until then a file that exists is what it was. Tensors on the CPU are written from
// where they are; those on a device come over one by one. `state` may have any names and texts, except that
// "format_version" is added.
KINDLING_API void save_checkpoint(const StateDict& state, const std::filesystem::path& path);

// To the CPU. `path` is a file, or a folder of checkpoints (ModelCheckpointOptions::dirpath) of which the
// latest one that is whole is read; a broken one is told to the app log.
KINDLING_API StateDict load_checkpoint(const std::filesystem::path& path);

// Loads the weights that validation measured: the averages (EMA, SWA) of a run that validates them, else the
// model's own. `monitor.value` and FitResult::best_checkpoint refer to these weights. `path` as for
// load_checkpoint(). Throws CheckpointError for a file that is not a checkpoint and, as load_state_dict()
// does, for names and shapes that differ; the model is then unchanged.
KINDLING_API LoadReport load_validated_weights(torch::nn::Module& module, const std::filesystem::path& path);

}  // namespace kindling
