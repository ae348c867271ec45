#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/config/command_line.h"
#include "cli/config/run_config.h"
#include "cli/run/fit_processes.h"
#include "kindling/data/data_module.h"
#include "kindling/nn/module.h"
#include "kindling/training/trainer_options.h"

namespace kindling {

// What trains a run again from one of its checkpoints, or from its seed.
struct RunAgain {
  std::filesystem::path run;  // its directory
  std::unique_ptr<RunConfig> config;
  std::shared_ptr<DataModule> data{};
  std::shared_ptr<Module> model{};
  TrainerOptions options{};           // without loggers
  std::vector<std::string> doubts{};  // why the results may differ from those of the run
};

// Makes the objects of the run that --run names in the request, as its fit made them before this step. The
// config is that of the next checkpoint after it, else config.toml, with the overrides of the request. Sets
// the number of operator threads of the run. `group`: the ranks that train it; nullptr: a single process.
// Throws ConfigError for a run that cannot happen again here: one of another number of ranks, or on another
// kind of device.
RunAgain make_run_again(const CommandContext& context, const std::filesystem::path& run, std::int64_t step,
                        const Group& group);
// Returns the directory of the run that a command names: a run, or a directory of runs, of which the newest
// counts. Throws ConfigError.
std::filesystem::path named_run(const std::filesystem::path& path);
// Returns how many ranks have trained a run.
std::int64_t num_ranks_of(const std::filesystem::path& run);

}  // namespace kindling
