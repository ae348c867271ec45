#include "program/weights.h"

#include "kindling/base/error.h"
#include "kindling/formats/safetensors.h"
#include "kindling/tensors/state_dict.h"
#include "program/resume_plan.h"
#include "program/run_folder.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

fs::path weights_of(const fs::path& run) {
  const fs::path weights = run / "weights.safetensors", folder = checkpoints_of(run);
  // A run that has gone on since it wrote them is further than they are.
  if (run_status(run) != "finished" && fs::is_directory(folder))
    if (const auto checkpoint = newest_valid_checkpoint(folder)) return checkpoint->path;
  if (fs::exists(weights)) return weights;
  throw CheckpointError({.place = run.string(),
                         .found = "there is neither a weights.safetensors nor a checkpoint that is whole",
                         .wanted = "the folder of a run, or a file"});
}

}  // namespace

void load_weights_from(Module& model, const fs::path& path) {
  const fs::path file = fs::is_directory(path) ? weights_of(path) : path;
  const bool is_checkpoint = SafetensorsFile(file).index().metadata.contains("progress.global_step");
  load_weights(model, file, {.prefix = is_checkpoint ? "model." : ""});
}

}  // namespace kindling
