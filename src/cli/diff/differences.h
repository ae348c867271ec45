#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "kindling/base/text.h"
#include "kindling/tensors/state_comparison.h"

namespace kindling {

// The result of comparing one part of two runs.
struct PartDifference {
  std::string part{};  // "config", "metrics", "step 20", "weights"
  bool is_equal = true;
  std::string summary{};  // a line: "equal, 47 keys"
  std::vector<TextColumn> columns{};
  std::vector<std::vector<std::string>> rows{};  // the differences; empty: the summary is complete
};

// Returns the first record, by step, in which two metrics.jsonl files differ, and how many records only one
// of them has. Names columns that one file lacks, which do not count as differences. Ignores metrics of the
// machine (times, waits, copies) and an incomplete last line. Throws DataError with the line of a file that
// cannot be read.
PartDifference difference_of_metrics(const std::filesystem::path& a, const std::filesystem::path& b,
                                     const Tolerance& tolerance);

// Returns the first tensor in which two states differ, and how many do: first those of the model, then those
// of the optimizer, then the rest.
PartDifference difference_of_states(const std::string& part, const StateDict& a, const StateDict& b,
                                    const Tolerance& tolerance);

// Compares two directories of checkpoints step by step. If one file of a step is not a checkpoint, such as
// weights written by Python to step-00000020.safetensors, compares only the model. An unreadable file counts
// as a difference.
std::vector<PartDifference> differences_of_checkpoints(const std::filesystem::path& a,
                                                       const std::filesystem::path& b,
                                                       const Tolerance& tolerance);

// True if there is a file step-NNNNNNNN.safetensors.
bool has_step_files(const std::filesystem::path& folder);

}  // namespace kindling
