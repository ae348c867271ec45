#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "cli/run/data_summary.h"
#include "cli/run/git_commit.h"
#include "kindling/base/file.h"
#include "kindling/training/fit_result.h"
#include "loggers/run_claim.h"

namespace kindling {

// The contents of run.json apart from versions, host and processor.
struct RunSummary {
  std::string status = "running";  // running, finished, stopped, diverged, failed
  std::string reason{};            // why the run ended, as FitReason; empty: still running
  std::string device{};
  std::string device_note{};  // why fewer GPUs than requested are used; empty: as requested
  std::int64_t num_processes = 1;
  std::string fast_mkl{};                  // MKL's kernels, as fast_mkl_text()
  std::string float32_matmul_precision{};  // precision of float32 matmuls
  std::int64_t seed = 0;
  GitCommit git{};  // of the project that has the config
  DataSummary data{};
  std::string best_name{};  // monitored value; empty: none
  double best_value = 0;
  std::int64_t best_epoch = 0;
  bool higher_is_better = false;
  Metrics metrics{};  // of the last epoch
  std::int64_t global_step = 0;
  std::optional<std::int64_t> resumed_from_step{};
  std::string last_checkpoint{}, best_checkpoint{};  // in the run's folder; empty: none
  // Of best_checkpoint. May differ from best_value, because the best epoch is not necessarily saved.
  std::int64_t best_checkpoint_step = 0;
  std::optional<double> best_checkpoint_value{};
};

// Throws ConfigError if runs cannot be created in a directory. Creates nothing.
void require_usable(const std::filesystem::path& dir);

// The directory of one run, DIR/NAME/0001, locked against other processes for the lifetime of this object.
// Writes what only the program knows: RunFolder is that of the library.
class FitFolder {
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
  bool is_reused() const noexcept { return is_reused_; }  // a killed run has left files in it
  std::filesystem::path file(const std::string& name) const { return path_ / name; }

  // Writes config.toml unless it already has this text.
  void write_config(const std::string& text) const;
  // Writes skipped.txt, a line per sample that the data skips; none: removes the file of an earlier start.
  void write_skipped(const std::vector<std::string>& skipped) const;
  // Appends a line to command.txt.
  void write_command(int argc, char** argv) const;
  // Takes the directory's lock again if its file has been removed, which is logged. Throws Error if another
  // process has taken it in the meantime.
  void renew_lock();
  // Rewrites run.json.
  void write_summary(const RunSummary& summary) const;

 private:
  struct Claim {
    std::filesystem::path run;
    std::optional<FolderLock> lock;
    bool is_reused = false;
  };
  explicit FitFolder(Claim claim);
  static Claim claim(const std::filesystem::path& runs);

  std::filesystem::path path_;
  std::optional<FolderLock> lock_;  // empty: another process writes
  bool is_reused_ = false;
  std::chrono::system_clock::time_point started_ = std::chrono::system_clock::now();
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();  // for durations
};

// In the directory of a sweep: its plan.
inline constexpr const char* kSweepPlanFile = "sweep.json";
// True for the directory of a sweep, whose runs are in NUMBER/0001.
bool is_sweep(const std::filesystem::path& folder);

// Return values from run.json; empty if they are missing or it cannot be read.
std::string run_status(const std::filesystem::path& run);
std::string run_fast_mkl(const std::filesystem::path& run);
// Returns the data in run.json; members that are missing or cannot be read are empty.
DataSummary run_data(const std::filesystem::path& run);

}  // namespace kindling
