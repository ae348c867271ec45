#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/sweep/sweep_table.h"

namespace kindling {

// Returns the report of a sweep as an HTML file: the table, and the curves of the best runs. `records` has
// the metrics.jsonl of each run; missing and damaged ones are skipped.
std::string sweep_page(const SweepPlan& plan, const std::vector<SweepRow>& rows, const std::string& title,
                       const std::vector<std::filesystem::path>& records);

}  // namespace kindling
