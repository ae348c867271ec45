#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "runs/sweep_plan.h"

namespace kindling {

// How a sweep is run, which does not change its results.
struct SweepRunOptions {
  std::filesystem::path folder{};  // of the sweep
  std::string program_name{};      // argv[0] of the runs
  std::int64_t jobs = 1;           // runs at the same time
  bool quiet = false;              // prints the table only
  bool json = false;               // as JSON, and nothing else
};

// Trains every run that has not ended yet and that no other process of the sweep is training, each in a
// process of its own, and writes table.csv, table.json and report.html after each. Interrupted runs resume,
// also those of a process that has been killed meanwhile; runs that had failed or were refused are tried
// again. SIGINT, SIGTERM and SIGHUP are passed on to the runs, which save and end. Returns the exit code: 0
// if a run has finished or another process is training one, 128 + signal after a signal, otherwise 1. Throws
// Error if a process cannot be started, and ConfigError if a config file was changed meanwhile, once the runs
// in progress have ended.
int run_sweep(const SweepPlan& plan, const SweepRunOptions& options);

}  // namespace kindling
