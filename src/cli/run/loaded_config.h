#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/config/chosen_keys.h"
#include "cli/config/command_line.h"
#include "cli/config/run_config.h"
#include "kindling/cli/registry.h"
#include "kindling/config/document.h"

namespace kindling {

struct LoadedConfig {
  ConfigDocument document;  // that the config was read from
  std::unique_ptr<RunConfig> config;
  std::string description;  // "digits.toml + 1 override"
  std::vector<ChosenKey> chosen;
  // --check or --print-config: nothing to run. Has been answered, apart from the --check of a fit.
  bool is_query = false;
};

// Merges the files and overrides of a command and resolves them. Throws ConfigError.
LoadedConfig load_config(const Request& request, const Registry& registry, ConfigUse use = ConfigUse::fit);

// Returns the request with overrides for the column to predict: by --target, which the table decides to be
// data.target or data.label; without --target and without these keys, by the table alone if that is allowed.
// A table of a fit is also the name of the run. Throws ConfigError for a table without a column to predict.
enum class TableGuess { none, column, column_and_reading };
Request with_column_to_predict(Request request, TableGuess guess = TableGuess::none);

// Removes the word that names a directory of images, and its override: the config of a run has it.
void remove_images(Request& request);

// Prints the answer to --check.
void print_valid(const LoadedConfig& loaded);

}  // namespace kindling
