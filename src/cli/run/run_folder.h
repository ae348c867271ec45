#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "kindling/base/file.h"
#include "kindling/training/fit_result.h"

namespace kindling {

// What run.json says beside versions and devices.
struct RunSummary {
  std::string status = "running";  // running, finished, stopped, failed
  std::string reason{};            // why it ended, as FitReason; empty: it has not
  std::string device{};
  std::string device_note{};  // why there are fewer cards than asked; empty: as asked
  std::int64_t num_processes = 1;
  std::string fast_mkl{};                  // what MKL has been told, as fast_mkl_text()
  std::string float32_matmul_precision{};  // by which the training multiplies
  std::int64_t seed = 0;
  std::string best_name{};  // monitored value; empty: none
  double best_value = 0;
  std::int64_t best_epoch = 0;
  Metrics metrics{};  // of the last epoch
  std::int64_t global_step = 0;
  std::optional<std::int64_t> resumed_from_step{};
  std::string last_checkpoint{}, best_checkpoint{};  // in the run's folder; empty: none
  // Of best_checkpoint. The best epoch need not have been saved, so this may be another value than
  // best_value.
  std::int64_t best_checkpoint_step = 0;
  std::optional<double> best_checkpoint_value{};
};

// The folder of one run, DIR/NAME/0001. No other process writes to it while this lives.
class RunFolder {
 public:
  // Makes one, with the next free number. Throws Error when it cannot be made or written.
  RunFolder(const std::filesystem::path& dir, const std::string& name);
  // That of a run which goes on. Throws Error when it cannot be written or another process is at work on it.
  explicit RunFolder(std::filesystem::path run);
  // That of a run which another process writes: nothing here does, but there may be further files. Made where
  // it is not there, on a machine with disks of its own. Throws Error when it cannot be made.
  static RunFolder of_another_process(std::filesystem::path run);

  const std::filesystem::path& path() const noexcept { return path_; }
  std::filesystem::path file(const std::string& name) const { return path_ / name; }

  // config.toml, unless it says so already.
  void write_config(const std::string& text) const;
  // Adds a line to command.txt.
  void write_command(int argc, char** argv) const;
  // run.json; written anew at every call.
  void write_summary(const RunSummary& summary) const;

 private:
  RunFolder(std::filesystem::path run, std::optional<FolderLock> lock)
      : path_(std::move(run)), lock_(std::move(lock)) {}

  std::filesystem::path path_;
  std::optional<FolderLock> lock_;  // nothing: another process writes
  std::chrono::system_clock::time_point started_ = std::chrono::system_clock::now();
};

// The run with the largest number; nothing when there is none.
std::optional<std::filesystem::path> newest_run(const std::filesystem::path& dir, const std::string& name);
// What its run.json says; empty when it does not, or cannot be read.
std::string run_status(const std::filesystem::path& run);
std::string run_fast_mkl(const std::filesystem::path& run);

}  // namespace kindling
