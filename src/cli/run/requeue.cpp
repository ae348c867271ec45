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
                     .remedy = "submit the fit with sbatch --requeue, or omit the key"});
}

bool has_command(const fs::path& run, const std::string& command) {
  constexpr std::size_t kMaxBytes = 1 << 22;
  const fs::path file = run / "command.txt";
  return fs::exists(file) &&
         ("\n" + read_file(file, kMaxBytes)).find("\n" + command + "\n") != std::string::npos;
}

// What a command has printed, in one line.
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

// SLURM sends TERM when it requeues a job, when a user cancels it and at the time limit.
enum class TermReason { requeue, time_limit, other };

TermReason reason_of_term(const SlurmJob& job) {
  const CommandAnswer answer = run_scontrol({"show", "job", "-o", job.id});
  if (number_in(scontrol_field(answer.text, "Restarts")) > job.restart_count) return TermReason::requeue;
  return scontrol_field(answer.text, "Reason") == "TimeLimit" ? TermReason::time_limit : TermReason::other;
}

}  // namespace

void require_requeue(const ConfigTables& config, const std::optional<SlurmJob>& job) {
  if (!is_to_requeue(config)) return;
  if (!job)
    refuse_requeue("this process is not in a job of SLURM: SLURM_JOB_ID is not set", "a job of SLURM");
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

RequeueResult requeue(const SlurmJob& job, int exit_code) {
  if (exit_code == 128 + SIGTERM) {
    const TermReason reason = reason_of_term(job);
    if (reason == TermReason::requeue) {
      std::cout << "SLURM has requeued job " << job.id << "; its next start resumes this run\n";
      return RequeueResult::requeued;
    }
    if (reason == TermReason::other) return RequeueResult::not_wanted;
  } else if (exit_code != 128 + SIGUSR1) {
    return RequeueResult::not_wanted;
  }
  const CommandAnswer answer = run_scontrol({"requeue", job.id});
  if (answer.exit_code == 0) {
    std::cout << "requeued job " << job.id << "; its next start resumes this run\n";
    return RequeueResult::requeued;
  }
  log_error(
      Error(
          {.place = "scontrol requeue " + job.id,
           .found = "exit code " + std::to_string(answer.exit_code) + ": " + line_of(answer),
           .wanted = "a batch job that SLURM may requeue",
           .remedy = "the checkpoint is saved; submit the line below, and later jobs with sbatch --requeue"})
          .what());
  return RequeueResult::refused;
}

std::string line_to_submit(const LaunchPlace& place, const fs::path& run) {
  const std::string size = place ? std::to_string(place->size) : "1";
  std::string command = "kindling fit --resume " + shell_word(run.string());
  if (place && place->launcher == "SLURM") command = "srun " + command;
  if (place && place->launcher == "Open MPI") command = "mpirun -np " + size + " " + command;
  if (place && place->launcher == "MPICH") command = "mpiexec -n " + size + " " + command;
  return "sbatch --requeue --ntasks=" + size + " --wrap " + shell_word(command);
}

}  // namespace kindling
