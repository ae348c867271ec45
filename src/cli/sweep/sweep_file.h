#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runs/sweep_plan.h"

namespace kindling {

// A sweep file: its definition and how to run it.
struct SweepFile {
  SweepDefinition definition{};
  std::string dir = "sweeps";  // of all sweeps
  std::int64_t jobs = 1;
};

// Reads a sweep file: the table [sweep], and [parameters] with a list, "0..4" or a range such as
// {min = 1e-4, max = 1e-1, log = true} for each key. Throws ConfigError with the place of every error.
SweepFile load_sweep_file(const std::filesystem::path& file);

// Returns the parameter of `--sweep KEY=VALUES`: values separated by commas, or whole numbers as 0..4. Throws
// ConfigError.
SweepParameter parse_sweep_word(const std::string& word);

// Returns the files with their texts. Throws Error if one cannot be read.
std::vector<SweepConfigFile> read_configs(const std::vector<std::filesystem::path>& files);

}  // namespace kindling
