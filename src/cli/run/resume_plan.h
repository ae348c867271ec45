#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "cli/config/command_line.h"
#include "cli/config/run_config.h"
#include "kindling/checkpoint/checkpoint_folder.h"
#include "kindling/cli/registry.h"

namespace kindling {

// Where a fit begins.
struct ResumePlan {
  std::filesystem::path run{};                 // that goes on; empty: a new run
  std::filesystem::path restarts_in{};         // a new run in the folder of one that had no checkpoint yet
  std::optional<CheckpointInfo> checkpoint{};  // of it
  std::string note{};                          // what is to be said of it; empty: nothing
  bool is_finished = false;                    // nothing is left to be trained
};

// The run's folder that is meant by a path: the path itself, or the run of a checkpoint. Throws ConfigError
// when it is neither.
std::filesystem::path run_of(const std::filesystem::path& path);
// The checkpoints of a run.
std::filesystem::path checkpoints_of(const std::filesystem::path& run);
bool has_checkpoints(const std::filesystem::path& run);  // whole or not

// By --resume, else by checkpoint.resume. Throws CheckpointError when the run has no checkpoint to go on
// from, ConfigError with every key that differs from the run's config and may change its numbers, unless the
// request allows it. The config gets what finders have found for the run.
ResumePlan plan_resume(const Request& request, const Registry& registry, RunConfig& config);

}  // namespace kindling
