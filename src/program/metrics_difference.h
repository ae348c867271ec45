#pragma once

#include <filesystem>

#include "kindling/tensors/state_comparison.h"
#include "program/part_difference.h"

namespace kindling {

// The first record, by steps, in which two files metrics.jsonl differ, and how many records only one of them
// has. What a machine takes for a step (times, waits, copies) is left out. A last line that has been cut off
// is no record. Throws DataError for a file that cannot be read, with its line.
PartDifference difference_of_metrics(const std::filesystem::path& a, const std::filesystem::path& b,
                                     const Tolerance& tolerance);

}  // namespace kindling
