#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "charts/html_page.h"
#include "kindling/base/export.h"
#include "loggers/run_metrics.h"
#include "runs/run_files.h"

namespace kindling {

// What the page of a run depends on in addition to its files and metrics.
struct RunPageOptions {
  std::int64_t refresh_s = 0;           // of an active run; 0: the page does not reload itself
  double written_s = 0, max_age_s = 0;  // as in HtmlPage
  std::string monitor{};  // the best value of an active run; run.json has that of a run that ended
  bool higher_is_better = false;
};

// Returns the report of a run: results, curves, epochs, confusion matrices, speed and transfers, model,
// events, config and machine. What the directory lacks is missing in the page.
KINDLING_API HtmlPage page_of_run(const RunFiles& files, const RunMetrics& metrics,
                                  const RunPageOptions& options = {});

// A run in a page that compares several.
struct ComparedRun {
  const RunFiles& files;
  const RunMetrics& metrics;
};

// Returns a page with a table of the runs and a chart for each of the metrics, with a curve per run.
KINDLING_API HtmlPage page_of_runs(std::span<const ComparedRun> runs, std::span<const std::string> names);

}  // namespace kindling
