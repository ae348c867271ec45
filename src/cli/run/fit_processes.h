#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cli/config/command_context.h"
#include "cli/config/run_config.h"
#include "kindling/distributed/process_group.h"
#include "kindling/launch/launch_environment.h"

// The processes that make one fit.
namespace kindling {

// Throws ConfigError where a launcher has started another number of processes than that of the config.
void require_num_processes(const std::optional<LaunchEnvironment>& place, const RunConfig& config);

// What a config says about the processes of a fit.
struct ProcessRequest {
  std::int64_t num_gpus = 0, num_processes = 1;
};
// Returns how many processes the program starts on a machine with `num_available` GPUs: num_processes, or
// else one for each GPU that num_gpus allows.
std::int64_t num_to_start(ProcessRequest request, std::int64_t num_available);

// How many they are, by the launcher or the config.
std::int64_t num_processes(const std::optional<LaunchEnvironment>& place, const RunConfig& config);
// [batch_finder] and [lr_finder] are for one process: throws ConfigError where they are on and there are
// more.
void require_no_search(const std::optional<LaunchEnvironment>& place, const RunConfig& config);

// Starts the program anew with the same arguments, so often; the exit code of the fit. Where one of the
// processes is lost, all are started anew, as often as the config allows.
int launch_fit(const CommandContext& context, std::int64_t num_processes, const RunConfig& config);
// distributed.max_restarts is for processes that the program starts itself: says so where it is set for
// others.
void warn_unused_restarts(const std::optional<LaunchEnvironment>& place, const RunConfig& config);

// nullptr stands for a process alone.
using Group = std::shared_ptr<ProcessGroup>;

// The first process is the one that prints and writes.
inline bool is_first(const Group& group) { return group == nullptr || group->rank() == 0; }
// The text of the first process, in all of them.
std::string broadcast_text(const Group& group, const std::string& text);
// The largest of the numbers that the processes have, in all of them.
int largest(const Group& group, int number);

}  // namespace kindling
