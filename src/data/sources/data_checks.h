#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kindling/data/sampler.h"

namespace kindling {

// Throws ConfigError for an empty path, DataError unless the file exists. `key`: the option of [data] that
// names it; `kind`: "a CSV file".
void require_data_file(const std::filesystem::path& path, const char* key, const char* kind);

// Returns a hint for missing files of a data set that docs/reference/data_files.md describes. `root`: the
// directory that the user has chosen.
std::string where_to_download(const std::optional<std::filesystem::path>& root);

// Logs a warning about samples that are skipped, with the first of their errors. `place`: the key, or the
// file or directory that has them. `samples` is what they are called: "rows".
void warn_of_skipped(const std::string& place, const std::vector<std::string>& errors,
                     std::size_t num_samples, const std::string& samples);

// Returns a sampler that draws training samples with replacement, in proportion to their weights: float64
// [samples] on the CPU, finite and at least 0. Throws DataError if all are 0, with the place of the weights
// ("w.csv, column 'w'") and what the samples are called ("rows").
std::shared_ptr<const Sampler> weighted_training(const at::Tensor& weights, std::int64_t seed,
                                                 const std::string& place, const std::string& samples);

}  // namespace kindling
