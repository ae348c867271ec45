#include "kindling/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error_kind.h"
#include "base/file_descriptor.h"
#include "base/file_operations.h"
#include "base/folder.h"
#include "checkpoint/checkpoint_file.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"

namespace kindling {
namespace {

constexpr std::string_view kNameStart = "step-", kNameEnd = ".safetensors";

// A file with the name of a checkpoint.
struct StepFile {
  std::filesystem::path path;
  std::int64_t step = 0;
};

// "step-00000120.safetensors"
std::string name_of_step(std::int64_t global_step) {
  std::string digits = std::to_string(global_step);
  if (digits.size() < 8) digits.insert(0, 8 - digits.size(), '0');
  return std::string(kNameStart) + digits + std::string(kNameEnd);
}

// Accepts only names that name_of_step() returns.
std::optional<std::int64_t> step_in(const std::string& name) {
  if (!name.starts_with(kNameStart)) return std::nullopt;
  std::int64_t step = -1;
  std::from_chars(name.data() + kNameStart.size(), name.data() + name.size(), step);
  return step >= 0 && name == name_of_step(step) ? std::optional(step) : std::nullopt;
}

bool has_value(const CheckpointInfo& info) {
  return info.monitored_value && std::isfinite(*info.monitored_value);
}

// Verifies all values of the file; logs a damaged one.
bool is_whole(const CheckpointInfo& info) {
  try {
    SafetensorsFile(info.path).check();
    return true;
  } catch (const CheckpointError& error) {
    log_warning(std::string("skipped a checkpoint: ") + error.what());
    return false;
  }
}

std::optional<CheckpointInfo> first_whole(const std::vector<CheckpointInfo>& checkpoints) {
  const auto found = std::ranges::find_if(checkpoints, is_whole);
  return found == checkpoints.end() ? std::nullopt : std::optional(*found);
}

// Returns all entries of the directory. Throws CheckpointError if it cannot be read.
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

// Returns the latest first. Throws as files_in_folder() does.
std::vector<StepFile> step_files(const std::filesystem::path& folder) {
  std::vector<StepFile> files;
  for (const auto& path : files_in_folder(folder))
    if (const auto step = step_in(path.filename().string())) files.push_back({.path = path, .step = *step});
  std::ranges::sort(files, std::ranges::greater{}, &StepFile::step);
  return files;
}

// Returns the latest first.
void sort_by_step(std::vector<CheckpointInfo>& checkpoints) {
  std::ranges::stable_sort(checkpoints, std::ranges::greater{}, &CheckpointInfo::global_step);
}

// Returns the checkpoints that have a value to compare, the best first; of equal ones the earliest first.
// `checkpoints` are given the latest first.
std::vector<CheckpointInfo> by_monitored_value(const std::vector<CheckpointInfo>& checkpoints,
                                               bool higher_is_better) {
  const auto latest = std::ranges::find_if(checkpoints, has_value);
  std::vector<CheckpointInfo> ranked;
  for (const CheckpointInfo& info : checkpoints)
    if (has_value(info) && info.monitor == latest->monitor) ranked.push_back(info);
  std::ranges::reverse(ranked);  // the earliest first, also among equal values
  std::ranges::stable_sort(ranked, [&](const CheckpointInfo& a, const CheckpointInfo& b) {
    return higher_is_better ? *a.monitored_value > *b.monitored_value
                            : *a.monitored_value < *b.monitored_value;
  });
  return ranked;
}

void delete_file(const std::filesystem::path& path) {
  if (file_operations().unlink(path.c_str()) != 0 && errno != ENOENT) fail_on_file(path, "delete", errno);
}

CheckpointRetention checked_retention(CheckpointRetention retention) {
  if (retention.keep_last < 2 || retention.keep_best < 0 || retention.keep_every_n_steps < 0)
    throw ConfigError({.place = "checkpoint retention",
                       .found = "keep_last is " + std::to_string(retention.keep_last) + ", keep_best is " +
                                std::to_string(retention.keep_best) + ", keep_every_n_steps is " +
                                std::to_string(retention.keep_every_n_steps),
                       .wanted = "keep_last of at least 2 (one may be damaged), the others at least 0"});
  return retention;
}

std::filesystem::path made_folder(std::filesystem::path folder) {
  with_errors_as<CheckpointError>([&] { make_folder(folder); });
  return folder;
}

// Another writer would hold the lock.
void delete_leftovers(const std::filesystem::path& folder) {
  for (const auto& path : files_in_folder(folder)) {
    const std::string name = path.filename().string();
    if (name.starts_with(".step-") && name.find(".tmp.") != std::string::npos) delete_file(path);
  }
}

// Tested now because the first save may come hours later.
void try_to_write(const std::filesystem::path& folder) {
  const std::filesystem::path trial = folder / (".step-trial.tmp." + std::to_string(::getpid()));
  const std::string_view text = "written?\n";
  FileDescriptor file(trial, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW);
  int code = file.ok() ? write_all(file.get(), text) : errno;
  if (code == 0) code = file.close();
  file_operations().unlink(trial.c_str());
  if (code != 0) fail_on_file(trial, "write", code, text.size());
}

// Returns the checkpoints that certainly belong to this run; ignores others without a warning.
std::vector<CheckpointInfo> checkpoints_of_run(const std::filesystem::path& folder,
                                               const std::string& run_id) {
  std::vector<CheckpointInfo> checkpoints;
  for (const StepFile& file : step_files(folder)) try {
      CheckpointInfo info = read_checkpoint_info(file.path);
      if (info.run_id == run_id) checkpoints.push_back(std::move(info));
    } catch (const CheckpointError&) {
    }
  sort_by_step(checkpoints);
  return checkpoints;
}

// Adds the first checkpoint of every n steps. `all`: latest first.
void keep_first_ones(const std::vector<CheckpointInfo>& all, std::int64_t every_n_steps,
                     std::set<std::filesystem::path>& staying) {
  if (every_n_steps == 0) return;
  std::map<std::int64_t, const CheckpointInfo*> first;
  for (const CheckpointInfo& info : all) first[info.global_step / every_n_steps] = &info;
  for (const auto& [part, info] : first) staying.insert(info->path);
}

bool has_broken_header(const std::filesystem::path& path) {
  try {
    const SafetensorsFile file(path);
    return false;
  } catch (const CheckpointError&) {
    return true;
  }
}

void set_aside(const std::filesystem::path& path) {
  std::filesystem::path aside = path;
  aside += ".set_aside";
  std::error_code ignored;
  for (int number = 2; std::filesystem::exists(aside, ignored); ++number)
    (aside = path) += ".set_aside." + std::to_string(number);
  if (file_operations().rename(path.c_str(), aside.c_str()) != 0) fail_on_file(path, "rename", errno);
}

}  // namespace

std::vector<CheckpointInfo> list_checkpoints(const std::filesystem::path& folder) {
  std::vector<CheckpointInfo> checkpoints;
  for (const StepFile& file : step_files(folder)) try {
      checkpoints.push_back(read_checkpoint_info(file.path));
    } catch (const NewerCheckpointError&) {
      throw;
    } catch (const CheckpointError& error) {
      log_warning(std::string("a file is not a checkpoint: ") + error.what());
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

std::optional<CheckpointInfo> best_valid_checkpoint(const std::filesystem::path& folder) {
  const std::vector<CheckpointInfo> checkpoints = list_checkpoints(folder);
  const auto latest = std::ranges::find_if(
      checkpoints, [](const CheckpointInfo& info) { return has_value(info) && info.higher_is_better; });
  if (latest == checkpoints.end()) return std::nullopt;
  return first_whole(by_monitored_value(checkpoints, *latest->higher_is_better));
}

CheckpointFolder::CheckpointFolder(std::filesystem::path folder, CheckpointRetention retention)
    : path_(made_folder(std::move(folder))),
      retention_(checked_retention(retention)),
      lock_(with_errors_as<CheckpointError>([&] { return FolderLock(path_); })) {
  with_errors_as<CheckpointError>([&] {
    delete_leftovers(path_);
    try_to_write(path_);
  });
}

std::filesystem::path CheckpointFolder::file_of(std::int64_t global_step) const {
  return path_ / name_of_step(global_step);
}

void CheckpointFolder::renew_lock() {
  with_errors_as<CheckpointError>([&] { lock_.renew(); });
}

void CheckpointFolder::prune(const std::string& run_id) const {
  const std::vector<CheckpointInfo> all = checkpoints_of_run(path_, run_id);
  const std::vector<CheckpointInfo> ranked = by_monitored_value(all, retention_.higher_is_better);
  std::set<std::filesystem::path> staying;
  const auto keep = [&](const std::vector<CheckpointInfo>& checkpoints, std::int64_t count) {
    for (std::size_t i = 0; i < checkpoints.size() && static_cast<std::int64_t>(i) < count; ++i)
      staying.insert(checkpoints[i].path);
  };
  keep(all, retention_.keep_last);
  keep(ranked, retention_.keep_best);
  keep_first_ones(all, retention_.keep_every_n_steps, staying);
  with_errors_as<CheckpointError>([&] {
    for (const CheckpointInfo& info : all)
      if (!staying.contains(info.path)) delete_file(info.path);
  });
}

void CheckpointFolder::set_aside_after(const std::string& run_id, std::int64_t global_step) const {
  with_errors_as<CheckpointError>([&] {
    for (const CheckpointInfo& info : checkpoints_of_run(path_, run_id))
      if (info.global_step > global_step) set_aside(info.path);
    for (const StepFile& file : step_files(path_))
      if (file.step > global_step && has_broken_header(file.path)) set_aside(file.path);
    sync_folder(path_);
  });
}

}  // namespace kindling
