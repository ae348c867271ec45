#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kindling/data/data_module.h"

namespace kindling {

// The data of a run. Sets that the data module does not have, or whose loader throws, are absent.
struct DataSummary {
  std::string name{};                              // of the data module; empty: not known
  std::optional<std::int64_t> train{}, val{};      // samples
  std::map<std::string, std::int64_t> more_val{};  // samples of further validation sets, by name
  std::vector<std::string> class_names{};          // in the order of the labels; empty: they have none
  std::vector<std::string> skipped{};              // what is wrong with each sample that is skipped
  // XXH3-64 of the training set and of all validation sets: number, type, sizes and bytes of their tensors,
  // before the data module transforms batches. Empty unless all are tensors in memory (TensorDataset) of at
  // most kMaxChecksumBytes together.
  std::string checksum{};
};

// Returns how data differs from that of a run's start, such as "96 training samples before and 100 now";
// empty if no known value differs.
std::string difference_of(const DataSummary& before, const DataSummary& now);

// Returns the first class whose name differs, such as "class 1 was 'cat' before and is 'bird' now"; empty if
// none does, or one of the lists is empty.
std::string class_difference(const std::vector<std::string>& before, const std::vector<std::string>& now);

constexpr std::int64_t kMaxChecksumBytes = std::int64_t{1} << 28;

// Requests the loaders of a prepared data module and reads their tensors once. Never throws for what a loader
// throws: the fit reports that.
DataSummary summary_of(DataModule& data, std::string name,
                       std::int64_t max_checksum_bytes = kMaxChecksumBytes);

}  // namespace kindling
