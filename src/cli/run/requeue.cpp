#include "cli/run/requeue.h"

#include <charconv>
#include <cstdint>
#include <iostream>

#include "cli/config/command_line.h"
#include "cli/config/exit_codes.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/log.h"
#include "kindling/base/text.h"
#include "runs/run_folder.h"
#include "runs/run_summary.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_requeue(const std::string& found, const std::string& wanted) {
  throw ConfigError({.place = "run.on_usr1",
                     .found = "it is \"requeue\", but " + found,
                     .wanted = wanted,
                     .remedy = "submit the fit with sbatch --requeue, or set run.on_usr1=save"});
}

bool has_command(const fs::path& run, const std::string& command) {
  constexpr std::size_t kMaxBytes = 1 << 22;
  const fs::path file = run / "command.txt";
  return fs::exists(file) &&
         ("\n" + read_file(file, kMaxBytes)).find("\n" + command + "\n") != std::string::npos;
}

// The output of a command in one line.
std::string line_of(const CommandAnswer& answer) {
  std::string text = answer.text;
  while (text.ends_with('\n')) text.pop_back();
  return one_line(text);
}

std::int64_t number_in(const std::string& text) {
  std::int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// SLURM sends TERM when it requeues or preempts a job, when a user cancels it and at the time limit.
enum class TermReason { requeue, limit, other, unknown };

struct JobState {
  TermReason reason = TermReason::unknown;
  std::string id{};     // for scontrol requeue
  std::string error{};  // of scontrol
};

// A job that a task of an array has submitted has inherited the task's variables.
std::string id_of(const SlurmJob& job, const std::string& line) {
  if (job.id == job.number || line.empty()) return job.id;
  const std::string id = scontrol_field(line, "ArrayJobId") + "_" + scontrol_field(line, "ArrayTaskId");
  return id == job.id ? job.id : job.number;
}

// With a grace time, SLURM announces a preemption by TERM and requeues later only what is still running.
bool is_preempted(const std::string& text) {
  const std::string time = scontrol_field(text, "PreemptTime");
  return scontrol_field(text, "JobState") == "RUNNING" && !time.empty() && time != "None" && time != "N/A";
}

JobState state_of(const SlurmJob& job) {
  const CommandAnswer answer = run_scontrol({"show", "job", "-o", job.number});
  const std::string line = scontrol_line(answer.text, job.number);
  const std::string& text = line.empty() ? answer.text : line;
  JobState state{.id = id_of(job, line)};
  if (answer.exit_code != 0) {
    state.error = line_of(answer);
    return state;
  }
  const bool is_limit = scontrol_field(text, "Reason") == "TimeLimit" || is_preempted(text);
  const bool is_requeued = number_in(scontrol_field(text, "Restarts")) > job.restart_count;
  state.reason = is_requeued ? TermReason::requeue : is_limit ? TermReason::limit : TermReason::other;
  return state;
}

RequeueResult report_requeued(const std::string& by, const std::string& id) {
  std::cout << by << " job " << id << "; its next start resumes this run\n";
  return RequeueResult::requeued;
}

RequeueResult refuse(const std::string& command, const std::string& found) {
  log_error(
      Error({.place = command,
             .found = found,
             .wanted = "a batch job that SLURM may requeue",
             .remedy = "what is saved is kept; submit the line below, and later jobs with sbatch --requeue"})
          .what());
  return RequeueResult::refused;
}

}  // namespace

void require_requeue(const ConfigTables& config, const LaunchPlace& place,
                     const std::optional<SlurmJob>& job) {
  if (!is_to_requeue(config)) return;
  if (!job)
    refuse_requeue("this process is not in a job of SLURM: SLURM_JOB_ID is not set", "a job of SLURM");
  if (place && place->rank > 0) return;
  const CommandAnswer answer = run_scontrol({"--version"});
  if (answer.exit_code != 0) refuse_requeue(line_of(answer), "SLURM's scontrol on the PATH");
}

fs::path run_of_earlier_life(const ConfigTables& config, const std::optional<SlurmJob>& job,
                             const std::string& command) {
  if (!job || job->restart_count == 0 || !is_to_requeue(config)) return {};
  return newest_run_where(config.folder.dir, config.run.name,
                          [&](const fs::path& run) {
                            return run_text(run, "slurm_job") == job->id && has_command(run, command);
                          })
      .value_or(fs::path());
}

std::optional<double> kill_wait_s() {
  const std::string wait = scontrol_field(run_scontrol({"show", "config"}).text, "KillWait");
  return wait.empty() ? std::nullopt : std::optional(static_cast<double>(number_in(wait)));
}

RequeueResult requeue(const SlurmJob& job, int exit_code, std::int64_t num_unsaved_steps) {
  const bool is_term = exit_code == 128 + SIGTERM;
  if (!is_term && exit_code != 128 + SIGUSR1) return RequeueResult::not_wanted;
  const JobState state = state_of(job);
  if (is_term) {
    if (state.reason == TermReason::requeue) return report_requeued("SLURM has requeued", state.id);
    if (state.reason == TermReason::other) return RequeueResult::not_wanted;
    if (state.reason == TermReason::unknown)
      return refuse("scontrol show job " + job.number, "why SLURM ends the job is unknown: " + state.error);
  }
  // Life after life would repeat the same steps.
  if (num_unsaved_steps > 0) {
    log_error(Error({.place = "scontrol requeue " + state.id,
                     .found = "it was not called, because saving has failed: the latest checkpoint lacks " +
                              std::to_string(num_unsaved_steps) + " steps",
                     .wanted = "a checkpoint of the last step",
                     .remedy = "remove what prevents saving (see above), then submit the line below"})
                  .what());
    return RequeueResult::refused;
  }
  const CommandAnswer answer = run_scontrol({"requeue", state.id});
  if (answer.exit_code == 0) return report_requeued("requeued", state.id);
  // Another process of the job may have been first.
  if (state_of(job).reason == TermReason::requeue) return report_requeued("SLURM has requeued", state.id);
  return refuse("scontrol requeue " + state.id,
                "exit code " + std::to_string(answer.exit_code) + ": " + line_of(answer));
}

std::string line_to_submit(const LaunchPlace& place, const fs::path& run) {
  const std::string size = place ? std::to_string(place->size) : "1";
  if (place && place->launcher == "torchrun")
    return "sbatch --requeue and the same batch script, with --resume " + shell_word(run.string());
  std::string command = "kindling fit --resume " + shell_word(run.string());
  if (place && place->launcher == "SLURM") command = "srun " + command;
  if (place && place->launcher == "Open MPI") command = "mpirun -np " + size + " " + command;
  if (place && place->launcher == "MPICH") command = "mpiexec -n " + size + " " + command;
  return "sbatch --requeue --ntasks=" + size + " --wrap " + shell_word(command);
}

}  // namespace kindling
