#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "kindling/base/text.h"
#include "kindling/tensors/state_comparison.h"

namespace kindling {

// What the comparison of one part of two runs has found.
struct PartDifference {
  std::string part{};  // "config", "metrics", "step 20", "weights"
  bool is_equal = true;
  std::string summary{};  // a line: "equal, 47 keys"
  std::vector<TextColumn> columns{};
  std::vector<std::vector<std::string>> rows{};  // what differs; empty: the summary has said it
};

// "1 key", "2 keys"
inline std::string counted(std::size_t count, const std::string& thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

// The first record, by steps, in which two files metrics.jsonl differ, and how many records only one of them
// has. What a machine takes for a step (times, waits, copies) is left out. A last line that has been cut off
// is no record. Throws DataError for a file that cannot be read, with its line.
PartDifference difference_of_metrics(const std::filesystem::path& a, const std::filesystem::path& b,
                                     const Tolerance& tolerance);

// The first tensor in which two states differ, and how many do: of the model's first, then of the
// optimizer's, then of the rest.
PartDifference difference_of_states(const std::string& part, const StateDict& a, const StateDict& b,
                                    const Tolerance& tolerance);

// Step by step of two folders of checkpoints. Where one of a step is no checkpoint, such as Python's weights
// in a file step-00000020.safetensors, the model alone is compared. A file that cannot be read is a
// difference.
std::vector<PartDifference> differences_of_checkpoints(const std::filesystem::path& a,
                                                       const std::filesystem::path& b,
                                                       const Tolerance& tolerance);

// Whether there is a file step-NNNNNNNN.safetensors.
bool has_step_files(const std::filesystem::path& folder);

}  // namespace kindling
