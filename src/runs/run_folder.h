#pragma once

#include <filesystem>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/base/file.h"
#include "runs/run_summary.h"

namespace kindling {

// A run directory that this process writes.
struct RunClaim {
  std::filesystem::path run;
  std::optional<FolderLock> lock;  // empty: another process writes
  bool is_reused = false;          // a killed run has left files in it
};

// Returns the run with the largest number, if there is one.
KINDLING_API std::optional<std::filesystem::path> newest_run(const std::filesystem::path& dir,
                                                             const std::string& name);
// Returns the one with the largest number among those that meet a condition.
KINDLING_API std::optional<std::filesystem::path> newest_run_where(
    const std::filesystem::path& dir, const std::string& name,
    const std::function<bool(const std::filesystem::path& run)>& condition);
// Returns the directory with the largest number in `runs` that contains one of the files. A start that was
// killed or refused may have left later directories without them.
KINDLING_API std::optional<std::filesystem::path> newest_run_with(const std::filesystem::path& runs,
                                                                  std::initializer_list<const char*> files);

// Throws ConfigError if runs cannot be created in a directory. Creates nothing.
KINDLING_API void require_usable(const std::filesystem::path& dir);

// The directory of one run, DIR/NAME/0001, locked against other processes for the lifetime of this object.
// Writes what only the program knows: RunFolder is that of the library.
class KINDLING_API FitFolder {
 public:
  // Creates a directory with the next free number, or reuses the newest one if its run was killed before its
  // first checkpoint and its first epoch. What is created survives a power loss. Throws Error if it cannot be
  // created or written.
  FitFolder(const std::filesystem::path& dir, const std::string& name);
  // Opens the directory of a resumed run. Throws Error if it cannot be written or another process uses it.
  explicit FitFolder(std::filesystem::path run);
  // Opens the directory of a run that another process writes: this object writes none of its files, but
  // others may be added. Creates it if it does not exist, as on a machine with separate disks. Throws Error
  // if it cannot be created.
  static FitFolder of_another_process(std::filesystem::path run);

  const std::filesystem::path& path() const noexcept { return path_; }
  bool is_reused() const noexcept { return is_reused_; }
  std::filesystem::path file(const std::string& name) const { return path_ / name; }

  // Writes config.toml unless it already has this text.
  void write_config(const std::string& text) const;
  // Writes skipped.txt, a line per sample that the data skips; none: removes the file of an earlier start.
  void write_skipped(const std::vector<std::string>& skipped) const;
  // Appends a line to command.txt.
  void append_command(const std::string& line) const;
  // Takes the directory's lock again if its file has been removed, which is logged. Throws Error if another
  // process has taken it in the meantime.
  void renew_lock();
  // Returns the text of run.json.
  std::string summary_text(const RunSummary& summary) const;
  // Rewrites run.json.
  void write_summary(const RunSummary& summary) const;
  // Writes what commit_summary() makes run.json, so that it needs no more space on the disk.
  void stage_summary(const RunSummary& summary) const;
  void commit_summary() const;
  // Makes the files that grow during a run survive a power loss. Logs what cannot be made durable.
  void make_durable() const;

 private:
  explicit FitFolder(RunClaim claim);
  std::filesystem::path staged_summary() const;

  std::filesystem::path path_;
  std::optional<FolderLock> lock_;  // empty: another process writes
  bool is_reused_ = false;          // a killed run has left files in it
  RunStart start_{};
};

}  // namespace kindling
