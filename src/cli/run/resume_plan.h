#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "cli/config/command_line.h"
#include "cli/config/run_config.h"
#include "kindling/checkpoint/checkpoint_folder.h"
#include "kindling/cli/registry.h"

namespace kindling {

// Where a fit starts.
struct ResumePlan {
  std::filesystem::path run{};          // the run to resume; empty: a new run
  std::filesystem::path restarts_in{};  // the directory of a run without a checkpoint, which starts again
  std::optional<CheckpointInfo> checkpoint{};  // of it
  std::string note{};                          // printed by the fit; empty: nothing
  bool is_finished = false;                    // nothing is left to train
};

// Returns the run directory of a path, which is a run directory or a checkpoint of a run. Throws ConfigError
// otherwise.
std::filesystem::path run_of(const std::filesystem::path& path);
// Returns the directory of a run's checkpoints.
std::filesystem::path checkpoints_of(const std::filesystem::path& run);
bool has_checkpoints(const std::filesystem::path& run);  // intact or not

// Returns the newest run of a name, which checkpoint.resume = "last" and "best" mean. In a task of an array
// of SLURM, that of this task: other tasks of the array train at the same time.
std::optional<std::filesystem::path> last_run(const std::filesystem::path& dir, const std::string& name);

// Throws Error if a process uses the run that --resume or else checkpoint.resume names: its checkpoints
// change while they would be read. The lock is not kept; the fit takes it and plans again.
void require_unused_run(const Request& request, const RunConfig& config);

// Plans a fit from --resume or else checkpoint.resume. Throws CheckpointError if the run has no usable
// checkpoint, and ConfigError with every key that differs from the config that the checkpoint was saved with
// (for checkpoints of earlier versions: the run's config.toml) and may affect its results, unless the request
// allows that. Copies the results of the run's searches into the config.
ResumePlan plan_resume(const Request& request, const Registry& registry, RunConfig& config);

}  // namespace kindling
