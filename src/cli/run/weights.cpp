#include "cli/run/weights.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iostream>
#include <optional>
#include <string_view>
#include <vector>

#include "base/joined.h"
#include "checkpoint/checkpoint_file.h"
#include "cli/config/command_line.h"
#include "cli/run/resume_plan.h"
#include "kindling/base/error.h"
#include "kindling/base/suggest.h"
#include "kindling/checkpoint/checkpoint_folder.h"
#include "kindling/data/input_transform.h"
#include "kindling/formats/safetensors.h"
#include "kindling/formats/torch_file.h"
#include "kindling/tensors/checkpoint_file.h"
#include "loggers/metric_text.h"
#include "runs/run_folder.h"
#include "runs/sweep_plan.h"
#include "tensors/validated_weights.h"
#include "tensors/weights_file.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

std::string step_text(const CheckpointInfo& checkpoint) {
  return "step " + std::to_string(checkpoint.global_step);
}

WeightsSource last_weights(const fs::path& run) {
  const fs::path weights = run / "weights.safetensors", folder = checkpoints_of(run);
  // If a run was resumed after it wrote its weights, they are out of date.
  const std::string status = run_text(run, "status");
  const bool is_current = fs::exists(weights) && (status == "finished" || status == "stopped");
  if (!is_current && fs::is_directory(folder))
    if (const auto checkpoint = newest_valid_checkpoint(folder))
      return {
          .file = checkpoint->path, .run = run, .reason = step_text(*checkpoint) + ", the last checkpoint"};
  if (fs::exists(weights))
    return {.file = weights, .run = run, .reason = "the weights at the end of the run"};
  throw CheckpointError({.place = run.string(),
                         .found = "it contains neither weights.safetensors nor an intact checkpoint",
                         .wanted = "a run directory with weights, or a file"});
}

WeightsSource best_weights(const fs::path& run) {
  const fs::path folder = checkpoints_of(run);
  if (!has_checkpoints(run)) return last_weights(run);
  if (const auto best = best_valid_checkpoint(folder))
    return {
        .file = best->path,
        .run = run,
        .reason = step_text(*best) + ", best " + best->monitor + " " + metric_text(*best->monitored_value)};
  WeightsSource last = last_weights(run);
  last.reason += "; no checkpoint has a monitored value";
  return last;
}

WeightsSource weights_of_step(const fs::path& run, std::int64_t step) {
  std::vector<std::string> steps;
  const fs::path folder = checkpoints_of(run);
  if (fs::is_directory(folder))
    for (const CheckpointInfo& info : list_checkpoints(folder)) {
      if (info.global_step == step) return {.file = info.path, .run = run, .reason = step_text(info)};
      steps.push_back(std::to_string(info.global_step));
    }
  throw CheckpointError(
      {.place = run.string(),
       .found = "no checkpoint of step " + std::to_string(step),
       .wanted = steps.empty() ? "a run with checkpoints" : "one of steps " + joined(steps, ", ")});
}

std::optional<std::int64_t> step_of(std::string_view text) {
  std::int64_t step = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  return error == std::errc() && end == text.data() + text.size() && step >= 0 ? std::optional(step)
                                                                               : std::nullopt;
}

StateDict without_transform(StateDict weights) {
  std::erase_if(weights.tensors, [](const auto& item) { return is_of_input_transform(item.first); });
  return weights;
}

}  // namespace

fs::path run_at(const fs::path& folder) {
  if (fs::exists(folder / "config.toml") || fs::exists(folder / "checkpoints")) return folder;
  if (is_sweep(folder))
    throw ConfigError({.place = folder.string(),
                       .found = "it is the directory of a sweep",
                       .wanted = "one of its runs",
                       .remedy = "kindling runs " + shell_word(folder.string()) + " lists them"});
  return newest_run_with(folder, {"config.toml", "checkpoints"}).value_or(folder);
}

bool is_checkpoint(const fs::path& file) {
  return !is_weights_index(file) && !is_torch_file(file) &&
         SafetensorsFile(file).index().metadata.contains(saved_keys::kGlobalStep);
}

void require_weights_file(const fs::path& file) {
  const bool is_known = file.extension() == ".safetensors" || is_weights_index(file);
  if (is_known || !fs::is_regular_file(file) || is_torch_file(file)) return;
  try {
    const SafetensorsFile readable(file);
  } catch (const CheckpointError& error) {
    throw CheckpointError({.place = file.string(),
                           .found = "not a safetensors or .pt file",
                           .wanted = "weights saved by safetensors, torch.save, or Kindling",
                           .remedy = error.what()});
  }
}

WeightsSource find_weights(const std::string& words) {
  if (fs::is_directory(words)) return best_weights(run_at(words));
  const std::size_t colon = words.rfind(':');
  fs::path run = words.substr(0, colon);
  if (fs::exists(words) || colon == std::string::npos || !fs::is_directory(run)) {
    require_weights_file(words);
    return {.file = words};
  }
  run = run_at(run);
  const std::string which = words.substr(colon + 1);
  if (which == "best") return best_weights(run);
  if (which == "last") return last_weights(run);
  if (const auto step = step_of(which)) return weights_of_step(run, *step);
  throw ConfigError({.place = words,
                     .found = "'" + which + "'",
                     .wanted = "best, last or the number of a step after '" + run.string() + ":'"});
}

fs::path run_with(const WeightsSource& source) {
  if (!source.run.empty()) return source.run;
  fs::path folder = fs::absolute(source.file).lexically_normal().parent_path();
  if (folder.filename() == "checkpoints") folder = folder.parent_path();
  const bool is_run = fs::exists(folder / "config.toml") && fs::exists(folder / "run.json");
  return fs::is_regular_file(source.file) && is_run ? folder : fs::path();
}

void print_source(const WeightsSource& source) {
  if (!source.run.empty()) std::cerr << "weights  " << source.file.string() << "   " << source.reason << "\n";
}

LoadReport load_weights_from(Module& model, const fs::path& file, const LoadOptions& options) {
  // The weights of a table's run, for a model on other data.
  if (!input_transform_of(model) && !transform_in(file).empty())
    return load_state_dict(model, without_transform(weights_from(file)), file.string(), options);
  if (!is_checkpoint(file)) return load_weights(model, file, options);
  const bool is_renamed = !options.prefix.empty() || !options.map.empty();
  if (options.strict && !is_renamed) return load_validated_weights(model, file);
  return load_state_dict(model, validated_weights(file), file.string(), options);
}

std::vector<std::string> names_in(const fs::path& file, const std::string& key) {
  const WeightsFile saved = WeightsFile::open(file, key);
  const bool is_checkpoint = saved.metadata().contains(saved_keys::kGlobalStep);
  const std::string prefix = is_checkpoint ? saved_keys::kModel : "";
  std::vector<std::string> names;
  for (const WeightsFile::Entry& entry : saved.entries())
    if (entry.name.starts_with(prefix)) names.push_back(entry.name.substr(prefix.size()));
  return names;
}

std::string transform_in(const fs::path& file) {
  if (is_weights_index(file) || is_torch_file(file)) return {};
  const auto metadata = SafetensorsFile(file).index().metadata;
  const auto found = metadata.find(kInputTransform);
  return found == metadata.end() ? "" : found->second;
}

bool has_transform(const fs::path& file) {
  return std::ranges::any_of(names_in(file), is_of_input_transform);
}

StateDict weights_from(const fs::path& path) {
  const fs::path file = fs::is_directory(path) ? last_weights(path).file : path;
  return is_checkpoint(file) ? validated_weights(file) : load_state_file(file);
}

NameMap name_map_of(const std::vector<std::string>& rules, const std::string& source) {
  NameMap map;
  for (const std::string& rule : rules) {
    const std::size_t at = rule.find('=');
    if (at == std::string::npos)
      throw ConfigError(
          {.place = source + " " + rule, .found = "'=' is missing", .wanted = source + " FROM=TO"});
    map.emplace_back(rule.substr(0, at), rule.substr(at + 1));
  }
  return map;
}

void check_name_map(const NameMap& map, const std::vector<std::string>& names, const std::string& source) {
  for (const auto& [from, to] : map) {
    const auto fits = [&from = from](const std::string& name) { return name.starts_with(from); };
    if (std::any_of(names.begin(), names.end(), fits)) continue;
    const std::string close = nearest(from, names);
    throw ConfigError({.place = source + " " + from + "=" + to,
                       .found = "no name begins with '" + from + "'",
                       .wanted = "the beginning of a tensor name",
                       .remedy = close.empty() ? "" : "did you mean '" + close + "'?"});
  }
}

}  // namespace kindling
