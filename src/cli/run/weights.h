#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "kindling/nn/module.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// True if a file contains the whole state of a run, not only the model. Throws CheckpointError.
bool is_checkpoint(const std::filesystem::path& file);

// A file of weights, and why it was chosen.
struct WeightsSource {
  std::filesystem::path file;
  std::filesystem::path run{};  // empty: the file itself was named
  std::string reason{};         // such as "step 270, best val_acc 0.9972"
};

// Returns the file named by a word on the command line or in a config: a weights file (.safetensors, .pt), a
// checkpoint, or a run as RUN, RUN:best (the same), RUN:last or RUN:STEP, where RUN may also be a directory
// of runs (runs/digits), of which the newest counts. The best is the saved checkpoint with the best monitored
// value; for a run without one, the last weights, with the reason. Throws CheckpointError.
WeightsSource find_weights(const std::string& words);

// Throws CheckpointError for a file of another kind, with the details after that.
void require_weights_file(const std::filesystem::path& file);

// Returns the directory itself if it is a run, else the newest run in it, as of runs/digits; later
// directories that a killed start has left without config.toml do not count. Throws ConfigError for the
// directory of a sweep.
std::filesystem::path run_at(const std::filesystem::path& folder);

// Returns the directory of the run that the weights belong to; empty: they do not lie in a run.
std::filesystem::path run_with(const WeightsSource& source);

// Prints the file and the reason to stderr if a run was named.
void print_source(const WeightsSource& source);

// Loads the weights of a file; of a checkpoint those that validation measured, by the model's names. Throws
// CheckpointError.
LoadReport load_weights_from(Module& model, const std::filesystem::path& file,
                             const LoadOptions& options = {});

// Returns the names in the file that load_weights_from() would read, before the options rename them.
std::vector<std::string> names_in(const std::filesystem::path& file, const std::string& key = "");

// Returns true if the file contains the input transform of its model.
bool has_transform(const std::filesystem::path& file);
// Returns its description; empty: there is none, as in .pt files.
std::string transform_in(const std::filesystem::path& file);

// Returns the same weights by the model's names. `path` is a file, or a run, whose last weights are returned.
StateDict weights_from(const std::filesystem::path& path);

// As LoadOptions::map: the beginnings of names and what replaces them.
using NameMap = std::vector<std::pair<std::string, std::string>>;

// Parses rules "FROM=TO", as of --map. `source` is what errors call the rules: "--map" or "model.init_map".
// Throws ConfigError for a rule without '='.
NameMap name_map_of(const std::vector<std::string>& rules, const std::string& source);

// Throws ConfigError for a rule that applies to none of the names.
void check_name_map(const NameMap& map, const std::vector<std::string>& names, const std::string& source);

}  // namespace kindling
