#include "cli/run/resume_plan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "base/folder.h"
#include "base/joined.h"
#include "checkpoint/checkpoint_file.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/formats/safetensors.h"
#include "launch/slurm_job.h"
#include "runs/run_folder.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

// Tables that do not affect the results of the steps.
constexpr std::array kFreeTables{"distributed.", "checkpoint.",   "early_stopping.",
                                 "lr_finder.",   "batch_finder.", "run."};

// True for changes that do not affect the results of the steps, and for those that a resumed run must allow:
// a longer run, another machine.
bool is_harmless(const ConfigChange& change, const ConfigTables& config) {
  return std::ranges::any_of(kFreeTables, [&](const char* table) { return change.key.starts_with(table); }) ||
         config.policy_of(change.key).on_resume == OptionPolicy::OnResume::may_change;
}

// True if the value comes from the run's config.toml, which was edited or damaged after the checkpoint.
bool is_in_file(const ConfigChange& change, const std::vector<ConfigChange>& changes_of_file) {
  return std::ranges::any_of(changes_of_file, [&](const ConfigChange& one) {
    return one.key == change.key && one.now == change.now;
  });
}

void require_harmless(const std::vector<ConfigChange>& changes, const ConfigTables& config,
                      const fs::path& run, const std::vector<ConfigChange>& changes_of_file) {
  std::vector<ConfigChange> refused;
  for (const ConfigChange& change : changes)
    if (!is_harmless(change, config)) refused.push_back(change);
  if (refused.empty()) return;
  const auto line = [&](const ConfigChange& change) {
    return "  " + change.key + ": was " + change.was + ", now " + change.now +
           (is_in_file(change, changes_of_file) ? " (in its config.toml)\n" : "\n");
  };
  throw ConfigError({.found = run.string() +
                              ": the config differs from the one that the run was started with:\n" +
                              joined(refused, "", line) +
                              "nothing was run; undo these changes, or resume with --allow-config-change"});
}

std::size_t num_files(const fs::path& folder) {
  std::error_code ignored;
  std::size_t number = 0;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    number += entry.path().extension() == ".safetensors";
  return number;
}

CheckpointInfo checkpoint_or_error(std::optional<CheckpointInfo> checkpoint, const fs::path& run,
                                   const std::string& wanted) {
  if (checkpoint) return std::move(*checkpoint);
  const std::size_t number = num_files(checkpoints_of(run));
  throw CheckpointError(
      {.place = checkpoints_of(run).string(),
       .found = number == 0 ? "there is no checkpoint"
                            : "none of the " + std::to_string(number) + " checkpoint files is usable",
       .wanted = wanted,
       .remedy = "start a new run: kindling fit -c " + shell_word((run / "config.toml").string())});
}

CheckpointInfo newest_of(const fs::path& run) {
  const fs::path folder = checkpoints_of(run);
  return checkpoint_or_error(fs::is_directory(folder) ? newest_valid_checkpoint(folder) : std::nullopt, run,
                             "an intact checkpoint");
}

CheckpointInfo best_of(const fs::path& run, const RunConfig& config) {
  const Module::Monitor monitor = config.monitor_of(*config.make_model());
  return checkpoint_or_error(best_valid_checkpoint(checkpoints_of(run), monitor.higher_is_better), run,
                             "a checkpoint with a value of " + monitor.name);
}

CheckpointInfo checkpoint_at(const fs::path& path) {
  if (fs::is_directory(path)) return newest_of(path);
  for (const CheckpointInfo& info : list_checkpoints(path.parent_path()))
    if (info.path.filename() == path.filename()) return info;
  throw CheckpointError({.place = path.string(),
                         .found = "not a readable checkpoint",
                         .wanted = "a checkpoint saved by Kindling",
                         .remedy = "resume from the run directory, which uses its latest intact checkpoint"});
}

// The path of a run or a checkpoint that is requested; nothing for "last" and "best", which name no path.
std::optional<fs::path> requested_path(const Request& request, const RunConfig& config) {
  const std::string& requested = config.resume.resume;
  if (!request.resume.empty()) return request.resume;
  return requested == "last" || requested == "best" ? std::nullopt : std::optional<fs::path>(requested);
}

// " of task 3 of the array"; empty outside arrays.
std::string of_array_task() {
  const auto job = slurm_job();
  return job && !job->array_task.empty() ? " of task " + job->array_task + " of the array" : "";
}

// The run and checkpoint to resume; the run is empty for a new run.
ResumePlan requested_plan(const Request& request, const RunConfig& config) {
  const std::string& requested = config.resume.resume;
  if (const auto named = requested_path(request, config)) {
    const fs::path& path = *named;
    if (path.empty()) return {};
    return {.run = run_of(path), .checkpoint = checkpoint_at(fs::absolute(path).lexically_normal())};
  }
  const auto run = last_run(config.folder.dir, config.run.name);
  if (!run || !has_checkpoints(*run))
    return {.note = "nothing to resume in " + (fs::path(config.folder.dir) / config.run.name).string() +
                    of_array_task() + "; starting a new run"};
  return {.run = *run, .checkpoint = requested == "last" ? newest_of(*run) : best_of(*run, config)};
}

// False for a run that was killed after its last step: it still has to write its weights.
bool is_finished(const ResumePlan& plan, const TrainerOptions& options) {
  constexpr auto kNoEnd = std::numeric_limits<std::int64_t>::max();
  const bool is_at_end = options.fast_dev_run ||
                         plan.checkpoint->epoch >= options.max_epochs.value_or(kNoEnd) ||
                         plan.checkpoint->global_step >= options.max_steps.value_or(kNoEnd);
  return is_at_end && run_text(plan.run, "status") == "finished";
}

std::string position_text(const CheckpointInfo& checkpoint) {
  return "step " + std::to_string(checkpoint.global_step) + ", " + std::to_string(checkpoint.epoch) +
         (checkpoint.epoch == 1 ? " epoch" : " epochs");
}

// The config that the checkpoint was saved with; nothing in checkpoints of earlier versions.
std::unique_ptr<RunConfig> config_in(const ResumePlan& plan, const Registry& registry,
                                     const std::string& name) {
  const fs::path& file = plan.checkpoint->path;
  const Metadata metadata = SafetensorsFile(file).index().metadata;
  const auto found = metadata.find(saved_keys::kProgramConfig);
  if (found == metadata.end()) return nullptr;
  try {
    const auto document = ConfigDocument::parse(found->second, file.string() + ", config", plan.run);
    return std::make_unique<RunConfig>(document, registry, name);
  } catch (const ConfigError& error) {
    log_warning(std::string("this version cannot read the checkpoint's config, so the config is compared "
                            "with the run's config.toml instead: ") +
                error.what());
    return nullptr;
  }
}

// The config that a run has been trained with so far.
struct FormerConfig {
  std::unique_ptr<RunConfig> config;
  std::vector<ConfigChange> changes_of_file{};  // those that somebody has made in the run's config.toml
};

FormerConfig former_config(const ResumePlan& plan, const Registry& registry, const std::string& name) {
  FormerConfig former{.config = config_in(plan, registry, name)};
  try {
    auto file = std::make_unique<RunConfig>(ConfigDocument::load(plan.run / "config.toml"), registry, name);
    if (former.config)
      former.changes_of_file = changes_between(*former.config, *file);
    else
      former.config = std::move(file);
  } catch (const ConfigError& error) {
    if (!former.config) throw;
    log_warning(std::string("the run's config.toml cannot be read and is written again: ") + error.what());
  }
  return former;
}

}  // namespace

fs::path checkpoints_of(const fs::path& run) { return run / "checkpoints"; }

bool has_checkpoints(const fs::path& run) { return num_files(checkpoints_of(run)) > 0; }

fs::path run_of(const fs::path& path) {
  const fs::path absolute = fs::absolute(path).lexically_normal();
  const fs::path run = fs::is_directory(path) ? path
                       : absolute.parent_path().filename() == "checkpoints"
                           ? absolute.parent_path().parent_path()
                           : fs::path{};
  if (!run.empty() && fs::exists(run / "config.toml")) return run;
  throw ConfigError(
      {.place = path.string(),
       .found = fs::exists(path) ? "neither a run directory nor a checkpoint of a run"
                                 : "no such file or directory",
       .wanted = "a run directory, which contains config.toml, or a file in its checkpoints directory",
       .remedy = "for example runs/digits/0001"});
}

std::optional<fs::path> last_run(const fs::path& dir, const std::string& name) {
  const auto job = slurm_job();
  if (!job || job->array_task.empty()) return newest_run(dir, name);
  const auto run_of_task = newest_run_where(
      dir, name, [&](const fs::path& run) { return run_text(run, "slurm_array_task") == job->array_task; });
  if (run_of_task) return run_of_task;
  // Those outside of arrays and of former versions; one that another task has just begun has no status yet.
  return newest_run_where(dir, name, [&](const fs::path& run) {
    return run_text(run, "slurm_array_task").empty() && !run_text(run, "status").empty();
  });
}

void require_unused_run(const Request& request, const RunConfig& config) {
  const auto path = requested_path(request, config);
  if (path && path->empty()) return;  // a new run
  const auto run = path ? std::optional(run_of(*path)) : last_run(config.folder.dir, config.run.name);
  if (!path && run && !has_checkpoints(*run)) return;   // a new run, too
  if (run && is_folder_locked(*run)) FolderLock{*run};  // throws with the process that has it
}

ResumePlan plan_resume(const Request& request, const Registry& registry, RunConfig& config) {
  ResumePlan plan = requested_plan(request, config);
  if (plan.run.empty()) return plan;
  const FormerConfig former = former_config(plan, registry, config.run.name);
  config.keep_found(*former.config);
  const auto changes = changes_between(*former.config, config);
  if (!request.allow_config_change) require_harmless(changes, config, plan.run, former.changes_of_file);
  if ((plan.is_finished = is_finished(plan, config.trainer_options()))) {
    plan.note = plan.run.string() + " is finished: " + position_text(*plan.checkpoint) +
                "; to continue it, increase trainer.max_epochs or max_steps";
    return plan;
  }
  plan.note = "after " + position_text(*plan.checkpoint) + "   " + plan.checkpoint->path.filename().string();
  const auto text = [](const ConfigChange& change) {
    return change.key + " " + change.was + " -> " + change.now;
  };
  if (!changes.empty()) plan.note += "   changed " + joined(changes, ", ", text);
  return plan;
}

}  // namespace kindling
