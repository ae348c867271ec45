#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/charts/chart.h"
#include "loggers/run_metrics.h"

// Draws the metrics of runs.
namespace kindling {

// True for what an epoch's record says about the machine: times, waits and transfers. The only list of them.
KINDLING_API bool is_machine_metric(std::string_view name);
// True for one of the many values that make up another one, such as the norms of the gradients of single
// parameters or the errors of single steps of a rollout: tables of epochs omit them.
bool is_part_of_metric(std::string_view name);

// Returns what train_loss, val_loss and train_loss_step have in common ("loss"), and grad_norm/net.0.weight
// with the other gradients ("grad_norm").
KINDLING_API std::string family_of(std::string_view metric);

// The metrics of one run and the name of that run in a legend.
struct LabelledMetrics {
  std::string label{};
  const RunMetrics* metrics = nullptr;
};

// Returns a chart for each family of the given metrics of a run, with a curve per metric, over epochs, or
// over steps where a metric has values of steps. Names that the run does not have are skipped.
KINDLING_API std::vector<Chart> charts_of_run(const RunMetrics& run, std::span<const std::string> names);

// Returns a chart for each given metric that any run has, with a curve per run.
KINDLING_API std::vector<Chart> charts_of_runs(std::span<const LabelledMetrics> runs,
                                               std::span<const std::string> names);

// Returns the names of all runs in order of appearance, those of the machine or the others.
KINDLING_API std::vector<std::string> metric_names(std::span<const LabelledMetrics> runs, bool of_machine);

}  // namespace kindling
