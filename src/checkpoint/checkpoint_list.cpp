#include "checkpoint/checkpoint_list.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include "checkpoint/checkpoint_file.h"
#include "kindling/base/log.h"

namespace kindling {
namespace {

constexpr std::string_view kNameStart = "step-", kNameEnd = ".safetensors";

// Only names that name_of_step makes.
std::optional<std::int64_t> step_in(const std::string& name) {
  if (!name.starts_with(kNameStart)) return std::nullopt;
  std::int64_t step = -1;
  std::from_chars(name.data() + kNameStart.size(), name.data() + name.size(), step);
  return step >= 0 && name == name_of_step(step) ? std::optional(step) : std::nullopt;
}

bool has_value(const CheckpointInfo& info) {
  return info.monitored_value && std::isfinite(*info.monitored_value);
}

// Reads all values of the file; a broken one is told to the app log.
bool is_whole(const CheckpointInfo& info) {
  try {
    SafetensorsFile(info.path).check();
    return true;
  } catch (const CheckpointError& error) {
    log_warning(std::string("a checkpoint is left out: ") + error.what());
    return false;
  }
}

std::optional<CheckpointInfo> first_whole(const std::vector<CheckpointInfo>& checkpoints) {
  const auto found = std::ranges::find_if(checkpoints, is_whole);
  return found == checkpoints.end() ? std::nullopt : std::optional(*found);
}

}  // namespace

std::string name_of_step(std::int64_t global_step) {
  std::string digits = std::to_string(global_step);
  if (digits.size() < 8) digits.insert(0, 8 - digits.size(), '0');
  return std::string(kNameStart) + digits + std::string(kNameEnd);
}

std::vector<std::filesystem::path> files_in_folder(const std::filesystem::path& folder) {
  std::error_code code;
  std::vector<std::filesystem::path> files;
  std::filesystem::directory_iterator entry(folder, code);
  for (; !code && entry != std::filesystem::directory_iterator(); entry.increment(code))
    files.push_back(entry->path());
  if (code)
    throw CheckpointError({.place = folder.string(),
                           .found = "cannot read the folder: " + code.message(),
                           .wanted = "a folder of checkpoints",
                           .remedy = "check the path and its permissions"});
  return files;
}

std::vector<StepFile> step_files(const std::filesystem::path& folder) {
  std::vector<StepFile> files;
  for (const auto& path : files_in_folder(folder))
    if (const auto step = step_in(path.filename().string())) files.push_back({.path = path, .step = *step});
  std::ranges::sort(files, std::ranges::greater{}, &StepFile::step);
  return files;
}

void sort_by_step(std::vector<CheckpointInfo>& checkpoints) {
  std::ranges::stable_sort(checkpoints, std::ranges::greater{}, &CheckpointInfo::global_step);
}

std::vector<CheckpointInfo> by_monitored_value(const std::vector<CheckpointInfo>& checkpoints,
                                               bool higher_is_better) {
  const auto latest = std::ranges::find_if(checkpoints, has_value);
  std::vector<CheckpointInfo> ranked;
  for (const CheckpointInfo& info : checkpoints)
    if (has_value(info) && info.monitor == latest->monitor) ranked.push_back(info);
  std::ranges::reverse(ranked);  // the earliest first, and so among equal values
  std::ranges::stable_sort(ranked, [&](const CheckpointInfo& a, const CheckpointInfo& b) {
    return higher_is_better ? *a.monitored_value > *b.monitored_value
                            : *a.monitored_value < *b.monitored_value;
  });
  return ranked;
}

std::vector<CheckpointInfo> list_checkpoints(const std::filesystem::path& folder) {
  std::vector<CheckpointInfo> checkpoints;
  for (const StepFile& file : step_files(folder)) try {
      checkpoints.push_back(read_checkpoint_info(file.path));
    } catch (const NewerCheckpointError&) {
      throw;
    } catch (const CheckpointError& error) {
      log_warning(std::string("a file is no checkpoint: ") + error.what());
    }
  sort_by_step(checkpoints);
  return checkpoints;
}

std::optional<CheckpointInfo> newest_valid_checkpoint(const std::filesystem::path& folder) {
  return first_whole(list_checkpoints(folder));
}

std::optional<CheckpointInfo> best_valid_checkpoint(const std::filesystem::path& folder,
                                                    bool higher_is_better) {
  return first_whole(by_monitored_value(list_checkpoints(folder), higher_is_better));
}

}  // namespace kindling
