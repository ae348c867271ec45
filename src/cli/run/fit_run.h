#pragma once

#include <memory>

#include "program/commands.h"
#include "program/fit_processes.h"
#include "program/loaded_config.h"
#include "program/resume_plan.h"
#include "program/stop_on_signal.h"

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
int tell_finished(bool is_first, const ResumePlan& plan);

// From the run's folder to the saved weights; the exit code. Each process of the group calls it.
int run_fit(FitInputs inputs);

}  // namespace kindling
