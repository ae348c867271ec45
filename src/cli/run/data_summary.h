#pragma once

#include <cstdint>
#include <string>

#include "kindling/data/data_module.h"
#include "runs/run_summary.h"

namespace kindling {

constexpr std::int64_t kMaxChecksumBytes = std::int64_t{1} << 28;

// Requests the loaders of a prepared data module and reads their tensors once. Never throws for what a loader
// throws: the fit reports that.
DataSummary summary_of(DataModule& data, std::string name,
                       std::int64_t max_checksum_bytes = kMaxChecksumBytes);

}  // namespace kindling
