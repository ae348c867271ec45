#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cli/config/command_context.h"
#include "cli/config/run_config.h"
#include "kindling/distributed/process_group.h"
#include "kindling/launch/launch_environment.h"

// The processes (ranks) of one fit.
namespace kindling {

// Throws ConfigError if a launcher has started a different number of processes than the config requests.
void require_num_processes(const std::optional<LaunchEnvironment>& place, const RunConfig& config);

// The settings of a config about the processes of a fit.
struct ProcessRequest {
  std::int64_t num_gpus = 0, num_processes = 1;
};
// Returns how many processes the program starts on a machine with `num_available` GPUs: num_processes, or
// else one for each GPU that num_gpus allows.
std::int64_t num_to_start(ProcessRequest request, std::int64_t num_available);

// Returns the number of ranks, from the launcher or the config.
std::int64_t num_processes(const std::optional<LaunchEnvironment>& place, const RunConfig& config);
// Throws ConfigError if [batch_finder] or [lr_finder] is on and there is more than one rank.
void require_no_search(const std::optional<LaunchEnvironment>& place, const RunConfig& config);

// Starts the program `num_processes` times with the same arguments and returns the exit code of the fit. If a
// process is lost, restarts all of them, as often as the config allows.
int launch_fit(const CommandContext& context, std::int64_t num_processes, const RunConfig& config);
// Warns if distributed.max_restarts is set for processes that the program does not start itself.
void warn_unused_restarts(const std::optional<LaunchEnvironment>& place, const RunConfig& config);

// nullptr for a single process.
using Group = std::shared_ptr<ProcessGroup>;

// True for rank 0, which prints and writes.
inline bool is_first(const Group& group) { return group == nullptr || group->rank() == 0; }
// Returns the text of rank 0 on all ranks.
std::string broadcast_text(const Group& group, const std::string& text);
// Returns the maximum over all ranks, on all ranks.
int largest(const Group& group, int number);

}  // namespace kindling
