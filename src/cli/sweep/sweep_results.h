#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "cli/sweep/epoch_reader.h"
#include "cli/sweep/sweep_table.h"

namespace kindling {

// The rows of a sweep and the files that show them.
class SweepResults {
 public:
  // Reads the runs that are already in the directory. Throws Error if it cannot be read.
  SweepResults(const SweepPlan& plan, std::filesystem::path folder);

  const std::vector<SweepRow>& rows() const noexcept { return rows_; }
  bool higher_is_better() const noexcept { return plan_.mode != "min"; }
  // False if the run has finished, diverged or was stopped for good.
  bool is_to_run(std::size_t run) const;

  void note_start(std::size_t run);
  // Sets the row of a run that has ended. `was_asked`: to end, by a signal to the sweep.
  void note_end(std::size_t run, int exit_code, bool was_asked);
  // Returns whether median stopping ends the run now, and records it before the run is asked to end.
  bool stop_by_median(std::size_t run);

  // Replace the files atomically.
  void write_tables() const;
  void write_report() const;

  // Returns the file that receives the output of a run.
  std::filesystem::path output_of(std::size_t run) const;
  std::filesystem::path folder_of(std::size_t run) const { return folder_ / plan_.runs[run].name; }

 private:
  void load_median_stops();
  void add_numbers(std::size_t run);
  std::string error_of(std::size_t run, bool is_first_line) const;
  const EpochValues& values_of(std::size_t run);

  const SweepPlan& plan_;
  std::filesystem::path folder_;
  std::vector<SweepRow> rows_;
  std::map<std::string, std::int64_t> median_stops_{};  // by the run's name: the last epoch that counts
  std::map<std::size_t, EpochReader> readers_{};
};

}  // namespace kindling
