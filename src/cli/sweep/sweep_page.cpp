#include "cli/sweep/sweep_page.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <system_error>

#include "charts/html_page.h"
#include "cli/sweep/shown_value.h"
#include "kindling/base/number_text.h"
#include "loggers/metric_charts.h"
#include "loggers/metric_text.h"
#include "loggers/run_metrics.h"

namespace kindling {
namespace {

constexpr std::size_t kMaxCurves = 12;  // as many as can be told apart

std::string number_or_nothing(const std::optional<std::int64_t>& number) {
  return number ? std::to_string(*number) : "";
}

PageTable table_of(const SweepPlan& plan, const std::vector<SweepRow>& rows) {
  PageTable table{.titles = {"run"}, .rows = {}, .num_text_columns = plan.keys.size() + 3};
  for (const std::string& key : plan.keys) table.titles.push_back(key);
  table.titles.insert(table.titles.end(), {"status", "best", "value", "epoch", "epochs", "steps"});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const SweepRow& row = rows[i];
    auto& cells = table.rows.emplace_back(std::vector{plan.runs[i].name});
    for (const std::string& value : plan.runs[i].values) cells.push_back(shown_value(value));
    cells.insert(cells.end(),
                 {row.status + (row.note.empty() ? "" : ": " + row.note), row.best ? row.monitor : "",
                  row.best ? metric_text(*row.best) : "", number_or_nothing(row.best_epoch),
                  number_or_nothing(row.epochs), number_or_nothing(row.steps)});
  }
  return table;
}

// The runs with the best values.
std::vector<std::size_t> best_runs(const SweepPlan& plan, const std::vector<SweepRow>& rows) {
  const bool higher_is_better = plan.mode != "min";
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].monitor == plan.monitor && rows[i].best && !std::isnan(*rows[i].best)) order.push_back(i);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return higher_is_better ? *rows[a].best > *rows[b].best : *rows[a].best < *rows[b].best;
  });
  order.resize(std::min(order.size(), kMaxCurves));
  return order;
}

}  // namespace

std::string sweep_page(const SweepPlan& plan, const std::vector<SweepRow>& rows, const std::string& title,
                       const std::vector<std::filesystem::path>& records) {
  std::deque<RunRecords> files;  // the charts point to their metrics
  std::vector<LabelledMetrics> runs;
  const bool higher_is_better = plan.mode != "min";
  for (const std::size_t run : best_runs(plan, rows)) try {
      files.push_back(read_metrics_file(records[run]));
      runs.push_back({plan.runs[run].name + " " + shortened(values_text(plan, plan.runs[run]), 60),
                      &files.back().metrics});
    } catch (const std::exception&) {  // the table has the run's results, too
    }
  PageTable table = table_of(plan, rows);
  if (const auto best = best_row(rows, plan.monitor, higher_is_better)) table.marked_row = *best;
  HtmlPage page{.title = title,
                .subtitle = std::to_string(rows.size()) + (rows.size() == 1 ? " run" : " runs"),
                .footer = "Kindling"};
  page.sections.push_back({.title = "Runs", .parts = {std::move(table)}});
  if (!runs.empty()) {
    const std::string note =
        "Curves of " + std::string(runs.size() < rows.size() ? "the best runs" : "all runs");
    page.sections.push_back(
        {.title = note,
         .parts = {PageCharts{charts_of_runs(runs, metric_names(runs, /*of_machine=*/false))}}});
  }
  return to_html(page);
}

}  // namespace kindling
