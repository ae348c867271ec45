#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "runs/sweep_table.h"

namespace kindling {

// A run's epochs: the monitored value (NaN if not finite) and the steps done at each.
struct EpochValue {
  double value = 0;
  std::int64_t steps = 0;
};
using EpochValues = std::map<std::int64_t, EpochValue>;

// Returns whether `value` is worse than the median of the others; the median of an even number is the mean of
// the two in the middle. NaN is worse than every number.
bool is_worse_than_median(double value, std::vector<double> others, bool higher_is_better);

// Returns the first epoch after which median stopping ends the run; 0 if there is none.
std::int64_t median_stop_epoch(const EpochValues& run, const std::vector<const EpochValues*>& others,
                               const MedianStopping& options, bool higher_is_better);

// Follows one value of the epoch records in a metrics.jsonl that another process writes.
class EpochReader {
 public:
  EpochReader(std::filesystem::path file, std::string name)
      : file_(std::move(file)), name_(std::move(name)) {}

  // Reads the lines added since the last call; all of them if the file has become shorter, as on a resume.
  const EpochValues& update();
  const EpochValues& values() const noexcept { return values_; }
  const std::filesystem::path& file() const noexcept { return file_; }

 private:
  void take(const std::string& line);

  std::filesystem::path file_;
  std::string name_;
  std::size_t read_bytes_ = 0;
  std::string partial_{};
  EpochValues values_{};
};

// How the process of a run has ended.
struct SweepRunEnd {
  int exit_code = 0;                               // above 128: by a signal
  bool has_diverged = false, was_refused = false;  // what the exit code says of the fit and of its config
  bool was_asked = false;                          // to end, by a signal to the sweep
};

// For a sweep's directory, which its processes lock to store the plan and to write the files of all runs.
inline constexpr int kSweepLockTimeout_ms = 60'000;

// The rows of a sweep and the files that show them. Several processes may train the runs of one sweep: each
// locks the directory of a run, folder_of(), from its start to the note of its end.
class KINDLING_API SweepResults {
 public:
  // Reads the runs that are already in the directory. Throws Error if it cannot be read.
  SweepResults(const SweepPlan& plan, std::filesystem::path folder);

  // Reads again what other processes may have changed: all rows, or that of a run that this process has
  // locked.
  void refresh();
  void refresh(std::size_t run);

  const std::vector<SweepRow>& rows() const noexcept { return rows_; }
  bool higher_is_better() const noexcept { return plan_.mode != "min"; }
  // False if the run has finished, diverged or was stopped for good, or if it has failed, was refused or was
  // stopped since this object was made.
  bool is_to_run(std::size_t run) const;

  void note_start(std::size_t run);
  // Sets the row of a run that has ended, and notes it for the other processes. A failure to write is logged.
  void note_end(std::size_t run, const SweepRunEnd& end);
  // Returns whether median stopping ends the run now, and records it before the run is asked to end.
  bool stop_by_median(std::size_t run);

  // Replace the files atomically. For a process that has locked the sweep's directory.
  void write_tables() const;
  void write_report() const;

  // Returns the file that receives the output of a run.
  std::filesystem::path output_of(std::size_t run) const;
  std::filesystem::path folder_of(std::size_t run) const { return folder_ / plan_.runs[run].name; }

 private:
  // The latest end of a run that may be tried again.
  struct NotedEnd {
    std::int64_t attempt = 0;  // counts the ends; 0: none
    std::string status{}, note{};
  };

  void load_median_stops();
  void read_row(std::size_t run);
  NotedEnd noted_end(std::size_t run) const;
  void write_end(std::size_t run) const;
  void add_numbers(std::size_t run);
  std::string error_of(std::size_t run, bool is_first_line) const;
  const EpochValues& values_of(std::size_t run);

  const SweepPlan& plan_;
  std::filesystem::path folder_;
  std::vector<SweepRow> rows_;
  std::vector<std::int64_t> known_attempts_;            // those that had ended when this object was made
  std::vector<bool> is_final_;                          // the run will not be trained again
  std::set<std::size_t> own_{};                         // runs that this process is training
  std::map<std::string, std::int64_t> median_stops_{};  // by the run's name: the last epoch that counts
  std::map<std::size_t, EpochReader> readers_{};
};

}  // namespace kindling
