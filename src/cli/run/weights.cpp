#include "program/weights.h"

#include <ATen/core/Tensor.h>

#include "checkpoint/checkpoint_file.h"
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
  const std::string status = run_status(run);
  const bool is_current = fs::exists(weights) && (status == "finished" || status == "stopped");
  if (!is_current && fs::is_directory(folder))
    if (const auto checkpoint = newest_valid_checkpoint(folder)) return checkpoint->path;
  if (fs::exists(weights)) return weights;
  throw CheckpointError({.place = run.string(),
                         .found = "there is neither a weights.safetensors nor a checkpoint that is whole",
                         .wanted = "the folder of a run, or a file"});
}

fs::path file_meant(const fs::path& path) { return fs::is_directory(path) ? weights_of(path) : path; }

// Where in a file the model is.
struct Place {
  std::string model;  // what names begin with
  std::string
      averages;  // the same of averages, which the model's validation has looked at; empty: there are none
};

// A checkpoint holds more than the model.
Place place_in(const fs::path& file) {
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
  const fs::path file = file_meant(path);
  const Place place = place_in(file);
  if (place.averages.empty())
    load_weights(model, file, {.prefix = place.model, .key = key});
  else
    load_state_dict(model, weights_from(file), file.string());
}

StateDict weights_from(const fs::path& path) {
  const fs::path file = file_meant(path);
  const Place place = place_in(file);
  const StateDict saved = load_state_file(file);
  StateDict weights = renamed(saved, {.prefix = place.model}, file.string());
  if (place.averages.empty()) return weights;
  const StateDict averages = renamed(saved, {.prefix = place.averages}, file.string());
  for (auto& [name, tensor] : weights.tensors)
    if (const at::Tensor* average = averages.find(name)) tensor = average->to(tensor.scalar_type());
  return weights;
}

}  // namespace kindling
