#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "kindling/tensors/state_comparison.h"
#include "program/part_difference.h"

namespace kindling {

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
