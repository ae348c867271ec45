#pragma once

#include <csignal>
#include <filesystem>
#include <optional>
#include <string>

#include "cli/config/run_config.h"
#include "cli/run/fit_processes.h"
#include "launch/slurm_job.h"

// run.on_usr1 = "requeue": the program lets SLURM start its job again, whose next life resumes the run.
namespace kindling {

inline bool is_to_requeue(const ConfigTables& config) { return config.process.on_usr1 == "requeue"; }

// Throws ConfigError if the config requests it outside a job of SLURM, or if rank 0 has no scontrol.
void require_requeue(const ConfigTables& config, const LaunchPlace& place,
                     const std::optional<SlurmJob>& job);

// Returns the run that an earlier life of this job has started with this command; empty: there is none.
std::filesystem::path run_of_earlier_life(const ConfigTables& config, const std::optional<SlurmJob>& job,
                                          const std::string& command);

// Returns KillWait of SLURM in seconds; empty: unknown.
std::optional<double> kill_wait_s();

// Returns a number per exit code of a rank: the largest one of all ranks decides. SIGUSR1 stops a run only if
// no rank got another signal.
inline int vote_of(int exit_code) { return exit_code == 128 + SIGUSR1 ? 1 : exit_code; }
inline int code_of_vote(int vote) { return vote == 1 ? 128 + SIGUSR1 : vote; }

// Whether the job of a run that has been stopped and saved starts again.
enum class RequeueResult {
  not_wanted,  // the user stopped it
  requeued,    // by this process or another one
  refused
};
// Requeues the job if SIGUSR1, the job's time limit or a preemption has stopped the run, and SLURM has not
// requeued it already; with steps that could not be saved, refuses. To be called by one process. `exit_code`:
// that of the stop. Prints and logs the outcome.
RequeueResult requeue(const SlurmJob& job, int exit_code, std::int64_t num_unsaved_steps);

// Returns the line that submits a job which resumes the run.
std::string line_to_submit(const LaunchPlace& place, const std::filesystem::path& run);

}  // namespace kindling
