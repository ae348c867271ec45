#include "program/weights.h"

#include "kindling/base/error.h"
#include "kindling/formats/safetensors.h"
#include "kindling/formats/torch_file.h"
#include "kindling/tensors/state_dict.h"
#include "program/resume_plan.h"
#include "program/run_folder.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

fs::path weights_of(const fs::path& run) {
  const fs::path weights = run / "weights.safetensors", folder = checkpoints_of(run);
  // A run that has gone on since it wrote them is further than they are.
  const bool is_current = fs::exists(weights) && run_status(run) == "finished";
  if (!is_current && fs::is_directory(folder))
    if (const auto checkpoint = newest_valid_checkpoint(folder)) return checkpoint->path;
  if (fs::exists(weights)) return weights;
  throw CheckpointError({.place = run.string(),
                         .found = "there is neither a weights.safetensors nor a checkpoint that is whole",
                         .wanted = "the folder of a run, or a file"});
}

fs::path file_meant(const fs::path& path) { return fs::is_directory(path) ? weights_of(path) : path; }

std::string prefix_in(const fs::path& file) { return is_checkpoint(file) ? "model." : ""; }

}  // namespace

bool is_checkpoint(const fs::path& file) {
  return !is_torch_file(file) && SafetensorsFile(file).index().metadata.contains("progress.global_step");
}

void load_weights_from(Module& model, const fs::path& path, const std::string& key) {
  const fs::path file = file_meant(path);
  load_weights(model, file, {.prefix = prefix_in(file), .key = key});
}

StateDict weights_from(const fs::path& path) {
  const fs::path file = file_meant(path);
  return renamed(load_state_file(file), {.prefix = prefix_in(file)}, file.string());
}

}  // namespace kindling
