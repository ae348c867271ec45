#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/base/file.h"

namespace kindling {

// What the header of a checkpoint tells of it.
struct CheckpointInfo {
  std::filesystem::path path;
  std::string run_id;                     // of the training that has saved it
  std::int64_t global_step = 0;           // optimizer steps done
  std::int64_t epoch = 0;                 // epochs finished
  std::string monitor{};                  // name of the value that tells how good it is; empty: none is known
  std::optional<double> monitored_value;  // absent or not finite: never the best
  // Whether larger values are better; absent in checkpoints without a monitor and of earlier versions.
  std::optional<bool> higher_is_better{};
};

// The checkpoints of a folder, step-00000120.safetensors, the latest step first. Files of other names are
// none. Only headers are read and checked; a file that is damaged or no checkpoint is left out and told to
// the app log as a warning. Throws CheckpointError when the folder cannot be read, and for a checkpoint of a
// newer version of Kindling: to go on from an older one would be to lose steps in silence.
KINDLING_API std::vector<CheckpointInfo> list_checkpoints(const std::filesystem::path& folder);

// The latest checkpoint of the folder whose every checksum holds; a broken one is told to the app log as a
// warning and the one before is tried. Nothing when there is none. Throws as list_checkpoints() does.
KINDLING_API std::optional<CheckpointInfo> newest_valid_checkpoint(const std::filesystem::path& folder);
// The best of those that hold, by their monitored values; of equal ones the earliest. Only values of the
// monitor that the latest of them has are compared.
KINDLING_API std::optional<CheckpointInfo> best_valid_checkpoint(const std::filesystem::path& folder,
                                                                 bool higher_is_better);
// The same, by the mode ("min" or "max") that the latest checkpoint with a monitor was saved with. Nothing
// when none of them says.
KINDLING_API std::optional<CheckpointInfo> best_valid_checkpoint(const std::filesystem::path& folder);

// Which checkpoints of a run stay.
struct CheckpointRetention {
  std::int64_t keep_last = 2;  // the latest ones, at least 2: one may be broken
  std::int64_t keep_best = 1;  // and the best ones of all, as best_valid_checkpoint() compares them
  bool higher_is_better = false;
};

// A folder that one training writes its checkpoints to. Used by one thread at a time.
class KINDLING_API CheckpointFolder {
 public:
  // Makes the folder where there is none; its parent must exist. Throws CheckpointError when it cannot be
  // made or written (tried with a file) or when another training holds it, ConfigError for a retention out of
  // range. Removes what a killed process has left half-written in it.
  CheckpointFolder(std::filesystem::path folder, CheckpointRetention retention);

  const std::filesystem::path& path() const noexcept { return path_; }
  std::filesystem::path file_of(std::int64_t global_step) const;

  // Deletes those checkpoints of this run that need not stay; call it once a new one is durable. Files of
  // other runs and other names, and damaged ones, are never touched. Throws CheckpointError, as all here.
  void prune(const std::string& run_id) const;
  // A training goes on from this step: checkpoints of the run that are later, which it will not come by
  // again, are renamed to NAME.set_aside (.set_aside.2 …), which nothing here reads or deletes. So are files
  // that are later by their name and whose header is damaged, as nobody can tell whose they were.
  void set_aside_after(const std::string& run_id, std::int64_t global_step) const;

 private:
  std::filesystem::path path_;
  CheckpointRetention retention_;
  FolderLock lock_;
};

}  // namespace kindling
