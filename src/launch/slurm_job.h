#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/launch/launch_environment.h"

namespace kindling {

// The job of SLURM that a process belongs to.
struct SlurmJob {
  std::string id{};                // as scontrol takes it: "17", of a task of an array "17_3"
  std::string number{};            // "18", which each task of an array has for itself
  std::string array_task{};        // "3"; empty: not in an array
  std::int64_t restart_count = 0;  // the number of times that SLURM has requeued the job
};

// Returns what SLURM's variables say; nothing outside its jobs. Throws ConfigError for invalid ones.
KINDLING_API std::optional<SlurmJob> slurm_job(const Variables& variables);
// The same for this process.
KINDLING_API std::optional<SlurmJob> slurm_job();

// How a command has ended, and what it has printed to both streams.
struct CommandAnswer {
  int exit_code = 0;  // 127: it cannot be run
  std::string text{};
};

// Runs scontrol with these arguments and waits for its end. It outlives the stop signals that SLURM sends to
// all processes of a job, also while it is being requeued.
KINDLING_API CommandAnswer run_scontrol(const std::vector<std::string>& arguments);

// Returns the line about the job with this number in what `scontrol show job -o` prints; empty: there is
// none.
KINDLING_API std::string scontrol_line(const std::string& text, const std::string& number);

// Returns the value of a field in what scontrol prints: "KillWait = 30 sec" and "Reason=TimeLimit" have
// "30 sec" and "TimeLimit". Fields of one line are separated by spaces; empty: there is none.
KINDLING_API std::string scontrol_field(const std::string& text, const std::string& name);

}  // namespace kindling
