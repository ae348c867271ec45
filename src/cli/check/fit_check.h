#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/run/loaded_config.h"
#include "kindling/data/data_module.h"

namespace kindling {

struct FitCheckOptions {
  std::filesystem::path checkpoint{};  // that the run is resumed from; empty: a new run
  bool tries_batch = true;
  std::int64_t num_ranks = 1;  // of the fit
};

// What a fit takes over from its check.
struct CheckedFit {
  std::shared_ptr<DataModule> data{};   // prepared, not consumed
  std::vector<std::string> warnings{};  // to be logged once
};

// Checks that a fit with this config can start: data files and ranges, patterns of names, weights, options of
// the optimizer and the schedule, monitored values, one batch through a throw-away model, and the saved state
// of a resumed run. Throws one error with all findings: ConfigError if the config has any, else DataError,
// else the error itself. The model that the fit makes afterwards, from the same seed, is bit-identical to
// that of an unchecked fit.
CheckedFit check_fit(const LoadedConfig& loaded, const FitCheckOptions& options = {});

// As check_fit(), for a fit that `kindling fit` would start with this config, without a launcher.
CheckedFit check_start(const LoadedConfig& loaded, const std::filesystem::path& checkpoint = {});

}  // namespace kindling
