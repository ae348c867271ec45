#include "cli/run/weights.h"

#include <ATen/core/Tensor.h>

#include "checkpoint/checkpoint_file.h"
#include "cli/run/resume_plan.h"
#include "cli/run/run_folder.h"
#include "kindling/base/error.h"
#include "kindling/formats/safetensors.h"
#include "kindling/formats/torch_file.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

fs::path weights_of(const fs::path& run) {
  const fs::path weights = run / "weights.safetensors", folder = checkpoints_of(run);
  // A run that has gone on since it wrote them is further than they are.
  const std::string status = run_status(run);
  const bool is_current = fs::exists(weights) && (status == "finished" || status == "stopped");
  if (!is_current && fs::is_directory(folder))
    if (const auto checkpoint = newest_valid_checkpoint(folder)) return checkpoint->path;
  if (fs::exists(weights)) return weights;
  throw CheckpointError({.place = run.string(),
                         .found = "there is neither a weights.safetensors nor a checkpoint that is whole",
                         .wanted = "the folder of a run, or a file"});
}

fs::path file_of(const fs::path& path) { return fs::is_directory(path) ? weights_of(path) : path; }

// What the names of the model's tensors in a file begin with.
struct NamePrefixes {
  std::string model;
  std::string averages;  // of the averages that the model's validation has used; empty: there are none
};

// A checkpoint holds more than the model.
NamePrefixes prefixes_in(const fs::path& file) {
  if (!is_checkpoint(file)) return {};
  const SafetensorsFile opened(file);
  const auto& texts = opened.index().metadata;
  const auto averages = texts.find(kAveragesKey);
  return {.model = "model.", .averages = averages == texts.end() ? "" : averages->second};
}

}  // namespace

bool is_checkpoint(const fs::path& file) {
  return !is_torch_file(file) && SafetensorsFile(file).index().metadata.contains("progress.global_step");
}

void load_weights_from(Module& model, const fs::path& path, const std::string& key) {
  const fs::path file = file_of(path);
  const NamePrefixes prefixes = prefixes_in(file);
  if (prefixes.averages.empty())
    load_weights(model, file, {.prefix = prefixes.model, .key = key});
  else
    load_state_dict(model, weights_from(file), file.string());
}

StateDict weights_from(const fs::path& path) {
  const fs::path file = file_of(path);
  const NamePrefixes prefixes = prefixes_in(file);
  const StateDict saved = load_state_file(file);
  StateDict weights = renamed(saved, {.prefix = prefixes.model}, file.string());
  if (prefixes.averages.empty()) return weights;
  const StateDict averages = renamed(saved, {.prefix = prefixes.averages}, file.string());
  for (auto& [name, tensor] : weights.tensors)
    if (const at::Tensor* average = averages.find(name)) tensor = average->to(tensor.scalar_type());
  return weights;
}

}  // namespace kindling
