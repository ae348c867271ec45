#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "runs/config_differences.h"
#include "runs/run_summary.h"

// The list of `kindling runs`.
namespace kindling {

// A run directory.
struct ListedRun {
  std::string name{};  // "digits/0001", relative to the listed directory
  RunRecord record{};
  std::size_t config = 0;  // its position in RunList::configs
};

// The runs below a directory, and the number of directories that are not runs.
struct RunList {
  std::vector<ListedRun> runs{};
  ConfigDifferences configs{};
  std::size_t num_skipped = 0;
};

// Orders of a list. time: by the start, newest last.
inline constexpr const char* kRunOrders[] = {"time", "name", "best", "status", "steps", "seconds"};

// Lists a directory that has runs in it, or directories of runs (DIR/NAME/0001), or is a run itself. `name`
// keeps the runs whose name contains it. Damaged and foreign directories never throw; throws ConfigError only
// if `dir` is not a directory.
KINDLING_API RunList list_runs(const std::filesystem::path& dir, const std::string& name);

// Sorts by one of kRunOrders. Runs without the value come first, so the last line is the best or newest run.
KINDLING_API void sort_runs(std::vector<ListedRun>& runs, const std::string& order, bool higher_is_better);

// True unless the name of the best value is that of a loss or an error.
KINDLING_API bool is_higher_better(const std::string& metric);

// Returns a table of at most `width` columns, with a column for each config key that differs as far as they
// fit, and a last line with counts.
KINDLING_API std::string table_of_runs(const RunList& list, std::size_t width);
// Returns a JSON object with all runs and all keys that differ.
KINDLING_API std::string json_of_runs(const RunList& list);

}  // namespace kindling
