#pragma once

#include <memory>

#include "cli/config/command_context.h"
#include "cli/run/fit_processes.h"
#include "cli/run/loaded_config.h"
#include "cli/run/resume_plan.h"
#include "cli/run/stop_on_signal.h"

namespace kindling {

// What a fit works with.
struct FitInputs {
  const CommandContext& context;
  const LoadedConfig& loaded;
  std::optional<LaunchEnvironment> place;  // nothing: this process alone
  Group group;
  ResumePlan plan;
  StopOnSignal& signals;
  std::shared_ptr<Module> model{};
  std::shared_ptr<DataModule> data{};
};

// Says that nothing is left to be done; 0.
int print_finished(bool is_first, const ResumePlan& plan);

// From the run's folder to the saved weights; the exit code. Each process of the group calls it.
int run_fit(FitInputs inputs);

}  // namespace kindling
