#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/base/text.h"

namespace kindling {

// The result of comparing one part of two runs.
struct PartDifference {
  std::string part{};  // "config", "metrics", "step 20", "weights"
  bool is_equal = true;
  std::string summary{};  // a line: "equal, 47 keys"
  std::vector<TextColumn> columns{};
  std::vector<std::vector<std::string>> rows{};  // the differences; empty: the summary is complete
};

// Values a and b are equal if |a - b| <= absolute + relative · max(|a|, |b|).
struct MetricTolerance {
  double relative = 0, absolute = 0;
};

// Returns the first record, by step, in which two metrics.jsonl files differ, and how many records only one
// of them has. Names columns that one file lacks, which do not count as differences. Ignores metrics of the
// machine (times, waits, copies) and an incomplete last line. Throws DataError with the line of a file that
// cannot be read.
KINDLING_API PartDifference difference_of_metrics(const std::filesystem::path& a,
                                                  const std::filesystem::path& b,
                                                  const MetricTolerance& tolerance);

}  // namespace kindling
