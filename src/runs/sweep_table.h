#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "runs/run_summary.h"
#include "runs/sweep_plan.h"

namespace kindling {

// A run in the table of a sweep. No column depends on time, so an interrupted sweep ends with the same table.
struct SweepRow {
  // pending, running, interrupted, finished, stopped (by max_time or a signal to this run), median (stopped
  // by median stopping), diverged, refused (its config has errors), failed
  std::string status = "pending";
  std::string monitor{};  // name of the value
  std::optional<double> best{};
  std::optional<std::int64_t> best_epoch{}, epochs{}, steps{};
  std::string note{};  // the error of a run that was refused or has failed
};

// Fills the numbers of a row from the records of its run.
void add_record(SweepRow& row, const RunRecord& record);

// Returns the position of the best finished run; nothing if there is none.
KINDLING_API std::optional<std::size_t> best_row(const std::vector<SweepRow>& rows,
                                                 const std::string& monitor, bool higher_is_better);

// Return the table, a row per run of the plan, in its order.
std::string sweep_csv(const SweepPlan& plan, const std::vector<SweepRow>& rows);
KINDLING_API std::string sweep_json(const SweepPlan& plan, const std::vector<SweepRow>& rows);
KINDLING_API std::string sweep_text(const SweepPlan& plan, const std::vector<SweepRow>& rows);

// Returns the report of a sweep as an HTML file: the table, and the curves of the best runs. `records` has
// the metrics.jsonl of each run; missing and damaged ones are skipped.
std::string sweep_page(const SweepPlan& plan, const std::vector<SweepRow>& rows, const std::string& title,
                       const std::vector<std::filesystem::path>& records);

// Returns "optimizer.lr=1e-4 seed=0".
KINDLING_API std::string values_text(const SweepPlan& plan, const SweepRun& run);

}  // namespace kindling
