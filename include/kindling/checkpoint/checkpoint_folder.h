#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/base/file.h"

namespace kindling {

// The contents of a checkpoint's header.
struct CheckpointInfo {
  std::filesystem::path path;
  std::string run_id;                     // of the run that saved it
  std::int64_t global_step = 0;           // optimizer steps done
  std::int64_t epoch = 0;                 // epochs finished
  std::string monitor{};                  // name of the value that measures quality; empty: unknown
  std::optional<double> monitored_value;  // absent or not finite: never the best
  // Whether larger values are better; absent in checkpoints without a monitor and of earlier versions.
  std::optional<bool> higher_is_better{};
};

// Returns the checkpoints of a directory, step-00000120.safetensors, latest step first. Files with other
// names are not checkpoints. Reads and checks headers only; damaged files and files that are not checkpoints
// are skipped with a warning. Throws CheckpointError if the directory cannot be read, and for a checkpoint of
// a newer version of Kindling, because resuming from an older one would silently lose steps.
KINDLING_API std::vector<CheckpointInfo> list_checkpoints(const std::filesystem::path& folder);

// Returns the latest checkpoint of the directory whose checksums all match. Skips a corrupt one with a
// warning and tries the one before. Returns nothing if there is none. Throws as list_checkpoints() does.
KINDLING_API std::optional<CheckpointInfo> newest_valid_checkpoint(const std::filesystem::path& folder);
// Returns the best of the valid checkpoints by their monitored values; the earliest among equals. Compares
// only values of the monitor that the latest of them has.
KINDLING_API std::optional<CheckpointInfo> best_valid_checkpoint(const std::filesystem::path& folder,
                                                                 bool higher_is_better);
// The same, with the mode ("min" or "max") of the latest checkpoint with a monitor. Returns nothing if no
// checkpoint has one.
KINDLING_API std::optional<CheckpointInfo> best_valid_checkpoint(const std::filesystem::path& folder);

// Which checkpoints of a run to keep.
struct CheckpointRetention {
  std::int64_t keep_last = 2;  // the latest ones, at least 2: one may be corrupt
  std::int64_t keep_best = 1;  // and the best ones overall, as best_valid_checkpoint() compares them
  bool higher_is_better = false;
  // And the first one of every n steps: of steps 0 to n - 1, n to 2n - 1 and so on; 0: none of them.
  std::int64_t keep_every_n_steps = 0;
};

// The directory of a run's checkpoints. Used by one thread at a time.
class KINDLING_API CheckpointFolder {
 public:
  // Creates the directory if it does not exist; its parent must exist. Throws CheckpointError if it cannot be
  // created or written (tested with a file) or if another run has locked it, and ConfigError for a retention
  // out of range. Removes incomplete files that a killed process has left in it.
  CheckpointFolder(std::filesystem::path folder, CheckpointRetention retention);

  const std::filesystem::path& path() const noexcept { return path_; }
  std::filesystem::path file_of(std::int64_t global_step) const;

  // Takes the directory's lock again if its file has been removed, which is logged. Throws CheckpointError if
  // another run has taken it in the meantime.
  void renew_lock();

  // Deletes the checkpoints of this run that need not be kept; call it once a new one is durable. Files of
  // other runs, files with other names, and damaged ones are never touched. Throws CheckpointError, as do all
  // functions here.
  void prune(const std::string& run_id) const;
  // Called when a run resumes from this step. Renames the run's later checkpoints, which the resumed run may
  // not reach again, to NAME.set_aside (.set_aside.2 …), which nothing here reads or deletes. Files that are
  // later by name and have a damaged header are renamed too, because it is unknown which run they belong to.
  void set_aside_after(const std::string& run_id, std::int64_t global_step) const;

 private:
  std::filesystem::path path_;
  CheckpointRetention retention_;
  FolderLock lock_;
};

}  // namespace kindling
