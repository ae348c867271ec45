#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/check/fit_findings.h"
#include "cli/config/run_config.h"
#include "kindling/data/data_loader.h"
#include "kindling/data/data_module.h"
#include "kindling/nn/module.h"
#include "kindling/training/trainer_options.h"
#include "training/tuner/trial_batch.h"

namespace kindling {

// A config and what the check of its fit has made of it so far.
struct FitParts {
  RunConfig& config;
  std::int64_t num_ranks = 1;                   // of the fit
  std::map<std::string, std::string> values{};  // of the config
  TrainerOptions trainer{};
  std::shared_ptr<DataModule> data{};  // this and the following are null if they cannot be made
  std::shared_ptr<DataLoader> train{}, validation{};
  bool is_data_complete = false;
  std::shared_ptr<Module> model{};
  TrialBatch trial{};

  // Returns the option's value without quotes; empty if it is absent.
  std::string text(const std::string& key) const;
  // Returns the option's value, a count; 0 if it is absent.
  std::int64_t count(const std::string& key) const;
  // True if the run validates.
  bool can_validate() const;
};

struct RunLength {
  std::int64_t epochs = 0, steps = 0;
};

// Returns the length of the run as the trainer computes it for schedules. Requires fit.train.
RunLength length_of_run(const FitParts& fit);

// Returns warnings for a new fit without errors: values that contradict each other or have no effect.
std::vector<std::string> warnings_of(const FitParts& fit);

// Adds findings for monitored values that the run does not log. Returns warnings for those that a callback of
// the user would have to log.
std::vector<std::string> check_monitors(const FitParts& fit, FitFindings& findings);

}  // namespace kindling
