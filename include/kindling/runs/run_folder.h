#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/base/file.h"
#include "kindling/loggers/epoch_table.h"
#include "kindling/loggers/logger.h"

namespace kindling {

struct RunClaim;  // a new directory with its lock

// The directory of one run, locked against other processes for the lifetime of this object and its copies. In
// data-parallel training only rank 0 may create it.
//   kindling::RunFolder run("runs", "mlp");
//   kindling::Trainer trainer({.max_epochs = 5, .loggers = run.loggers()});
class KINDLING_API RunFolder {
 public:
  // Creates the directory dir/name/NUMBER with the next free number ("runs/mlp/0001"). It survives a power
  // loss. Throws Error if it cannot be created, or if `name` is not the name of a directory.
  RunFolder(const std::filesystem::path& dir, const std::string& name);
  // Opens the existing directory of a run that resumes. Throws Error if it does not exist, if it cannot be
  // written, or if a process, also this one, uses it.
  explicit RunFolder(std::filesystem::path run);

  const std::filesystem::path& path() const noexcept { return path_; }
  // For ModelCheckpointOptions::dirpath; not created here.
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }

  // Returns new loggers for one fit, which write metrics.jsonl, metrics.csv, events.out.tfevents.* and,
  // during the fit and at its end, report.html and curves.svg. The report names the best value of
  // monitored.monitor. If the fit resumes from a checkpoint, they continue the files of the run. The first
  // fit in a directory that was opened by its path starts the records again if it does not resume: its first
  // record replaces those of the earlier start. Throws Error if metrics.jsonl cannot be opened.
  std::vector<std::shared_ptr<Logger>> loggers(const EpochTableOptions& monitored = {}) const;

 private:
  explicit RunFolder(RunClaim claim);

  std::filesystem::path path_;
  FolderLock lock_;
  std::shared_ptr<bool> has_earlier_records_;  // shared by copies, which belong to the same start
};

}  // namespace kindling
