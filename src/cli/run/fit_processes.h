#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cli/config/command_line.h"
#include "cli/config/run_config.h"
#include "cli/run/stop_on_signal.h"
#include "kindling/distributed/process_group.h"
#include "kindling/launch/launch_environment.h"

// The processes (ranks) of one fit.
namespace kindling {

// Throws ConfigError if a launcher has started a different number of processes than the config requests.
void require_num_processes(const std::optional<LaunchEnvironment>& place, const ConfigTables& config);

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
// process is lost, restarts all of them, as often as the config allows. `signals`: whose request to stop, if
// any, the ranks get.
int launch_fit(const CommandContext& context, std::int64_t num_processes, const ConfigTables& config,
               const StopOnSignal& signals);
// Starts the program `num_processes` times with the same arguments, without restarts, and returns the exit
// code.
int launch_ranks(const CommandContext& context, std::int64_t num_processes, double end_timeout_s);
// Warns if distributed.max_restarts is set for processes that the program does not start itself.
void warn_unused_restarts(const std::optional<LaunchEnvironment>& place, const ConfigTables& config);

// nullptr for a single process.
using Group = std::shared_ptr<ProcessGroup>;

// Joins the ranks of a launcher, and reports on ranks 0 and 1 if that takes longer than 10 seconds or half of
// the timeout: other ranks may never come.
Group join_ranks(const LaunchEnvironment& place, const DistributedOptions& options);

// True for rank 0, which prints and writes.
inline bool is_first(const Group& group) { return group == nullptr || group->rank() == 0; }
// Returns the text of rank 0 on all ranks.
std::string broadcast_text(const Group& group, const std::string& text);
// Returns the maximum over all ranks, on all ranks.
int largest(const Group& group, int number);

// Rank 0 works alone, and the others wait for it, for longer than their timeout if need be.
class SoloWork {
 public:
  // `interval_s`: between two messages to the others, less than their timeout.
  SoloWork(Group group, double interval_s);
  explicit SoloWork(const Group& group) : SoloWork(group, group ? group->options().timeout_s / 10 : 0) {}
  // Of rank 0, often: tells the others now and then that it still works. Throws DistributedError.
  void keep_waiting();
  // The end: returns the maximum over all ranks, on all ranks.
  int largest(int number);

 private:
  using Clock = std::chrono::steady_clock;
  Group group_;
  std::chrono::duration<double> interval_;
  Clock::time_point last_ = Clock::now();
};

// The run that the processes of a launch train: if one of them is lost and all are restarted, the next start
// resumes it.
using LaunchPlace = std::optional<LaunchEnvironment>;

// Returns the run of the previous start; empty if there was none or it had no run yet.
std::filesystem::path launched_run(const LaunchPlace& place);
// Records the run for the next start. Does nothing if there cannot be one.
void remember_run(const LaunchPlace& place, const std::filesystem::path& run);

// Returns the request of this start: that of the launch, or to resume the recorded run. A run without a
// checkpoint starts again in its directory, with its config.
struct StartRequest {
  Request request{};
  std::filesystem::path restarts_in{};  // empty: no restart
};
StartRequest request_of_start(const LaunchPlace& place, const Request& requested);
// Returns the request to continue a run; of an empty path, the request itself.
StartRequest request_to_continue(const std::filesystem::path& run, const Request& requested);

// "restart 2: process 1 of 2 was ended by signal 9 (Killed)"; empty for a first start.
std::string restart_text(const LaunchPlace& place);

}  // namespace kindling
