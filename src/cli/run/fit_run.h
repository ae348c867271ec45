#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/config/command_line.h"
#include "cli/run/early_messages.h"
#include "cli/run/fit_processes.h"
#include "cli/run/loaded_config.h"
#include "cli/run/resume_plan.h"
#include "cli/run/start_files.h"
#include "cli/run/stop_on_signal.h"
#include "launch/slurm_job.h"

namespace kindling {

// The number of callbacks of the program itself that may have a state; those of the config follow.
inline constexpr std::size_t kNumProgramCallbacks = 3;

// The inputs of a fit.
struct FitInputs {
  const CommandContext& context;
  const LoadedConfig& loaded;
  std::optional<LaunchEnvironment> place;  // empty: a single process
  std::optional<SlurmJob> job;             // empty: outside SLURM
  Group group;
  ResumePlan plan;
  StopOnSignal& signals;
  EarlyMessages& early;
  std::shared_ptr<Module> model{};
  std::shared_ptr<DataModule> data{};
  std::vector<std::string> warnings{};  // about the config, to be logged once
  std::string threads{};                // why operators have their number of threads; empty: it was set
  StartWeights start{};                 // of a new run
};

// Prints that the run is finished. Returns 0.
int print_finished(bool is_first, const ResumePlan& plan);

// Runs a fit from the run directory to the saved weights and returns the exit code. Called by all ranks.
int run_fit(FitInputs inputs);

}  // namespace kindling
