#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "kindling/checkpoint/checkpoint_folder.h"

namespace kindling {

// A file that is a checkpoint by its name.
struct StepFile {
  std::filesystem::path path;
  std::int64_t step = 0;
};

std::string name_of_step(std::int64_t global_step);  // "step-00000120.safetensors"

// Whatever lies in the folder. Throws CheckpointError when it cannot be read.
std::vector<std::filesystem::path> files_in_folder(const std::filesystem::path& folder);

// The latest first. Throws as files_in_folder() does.
std::vector<StepFile> step_files(const std::filesystem::path& folder);

// The latest first.
void sort_by_step(std::vector<CheckpointInfo>& checkpoints);

// Of checkpoints, the latest first, those with a value to compare: the best first, of equal ones the
// earliest.
std::vector<CheckpointInfo> by_monitored_value(const std::vector<CheckpointInfo>& checkpoints,
                                               bool higher_is_better);

}  // namespace kindling
