#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kindling/data/data_module.h"
#include "runs/run_summary.h"

namespace kindling {

constexpr std::int64_t kMaxChecksumBytes = std::int64_t{1} << 28;

// Requests the loaders of a prepared data module and reads their tensors once. Never throws for what a loader
// throws: the fit reports that.
DataSummary summary_of(DataModule& data, std::string name,
                       std::int64_t max_checksum_bytes = kMaxChecksumBytes);

// Returns the files and directories that values of [data] name, absolute paths and patterns, by key. Of a
// directory at most a million files count.
std::vector<DataFiles> data_files(const std::map<std::string, std::string>& config_values);

}  // namespace kindling
