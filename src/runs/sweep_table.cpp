#include "runs/sweep_table.h"

#include <algorithm>
#include <cmath>
#include <deque>

#include "charts/html_page.h"
#include "kindling/base/json.h"
#include "kindling/base/number_text.h"
#include "kindling/base/text.h"
#include "kindling/formats/csv.h"
#include "loggers/metric_charts.h"
#include "loggers/metric_text.h"
#include "runs/config_differences.h"

namespace kindling {
namespace {

constexpr std::size_t kMaxNoteWidth = 80;
constexpr std::size_t kMaxCurves = 12;  // as many as can be told apart

std::string csv_cell(const std::string& raw) { return csv_field(one_line(raw)); }

std::string text_or(const std::optional<std::int64_t>& number, const char* absent) {
  return number ? std::to_string(*number) : absent;
}

PageTable table_of(const SweepPlan& plan, const std::vector<SweepRow>& rows) {
  PageTable table{.titles = {"run"}, .rows = {}, .num_text_columns = plan.keys.size() + 3};
  for (const std::string& key : plan.keys) table.titles.push_back(key);
  table.titles.insert(table.titles.end(), {"status", "best", "value", "epoch", "epochs", "steps"});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const SweepRow& row = rows[i];
    auto& cells = table.rows.emplace_back(std::vector{plan.runs[i].name});
    for (const std::string& value : plan.runs[i].values) cells.push_back(shown_value(value));
    cells.insert(cells.end(), {row.status + (row.note.empty() ? "" : ": " + row.note),
                               row.best ? row.monitor : "", row.best ? metric_text(*row.best) : "",
                               text_or(row.best_epoch, ""), text_or(row.epochs, ""), text_or(row.steps, "")});
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

void add_record(SweepRow& row, const RunRecord& record) {
  row.monitor = record.best_name;
  row.best = record.best_value;
  row.best_epoch = record.best_epoch;
  row.epochs = record.epochs;
  row.steps = record.steps;
}

std::optional<std::size_t> best_row(const std::vector<SweepRow>& rows, const std::string& monitor,
                                    bool higher_is_better) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& value = rows[i].best;
    if (rows[i].monitor != monitor || !value || std::isnan(*value) ||
        (rows[i].status != "finished" && rows[i].status != "stopped"))
      continue;
    if (!best || (higher_is_better ? *value > *rows[*best].best : *value < *rows[*best].best)) best = i;
  }
  return best;
}

std::string values_text(const SweepPlan& plan, const SweepRun& run) {
  std::string text;
  for (std::size_t k = 0; k < plan.keys.size(); ++k)
    text += (k == 0 ? "" : " ") + plan.keys[k] + "=" + shown_value(run.values[k]);
  return text;
}

std::string sweep_csv(const SweepPlan& plan, const std::vector<SweepRow>& rows) {
  std::string text = "run";
  for (const std::string& key : plan.keys) text += "," + csv_cell(key);
  text += ",status,monitor,best,best_epoch,epochs,steps,note\n";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const SweepRow& row = rows[i];
    text += plan.runs[i].name;
    for (const std::string& value : plan.runs[i].values) text += "," + csv_cell(shown_value(value));
    text += "," + row.status + "," + csv_cell(row.monitor) + "," + (row.best ? number_text(*row.best) : "") +
            "," + text_or(row.best_epoch, "") + "," + text_or(row.epochs, "") + "," + text_or(row.steps, "") +
            "," + csv_cell(row.note) + "\n";
  }
  return text;
}

std::string sweep_json(const SweepPlan& plan, const std::vector<SweepRow>& rows) {
  std::string text = "{\"runs\": [";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const SweepRow& row = rows[i];
    text += std::string(i == 0 ? "" : ",") + "\n  {\"run\": " + json_string(plan.runs[i].name) +
            ", \"values\": {";
    for (std::size_t k = 0; k < plan.keys.size(); ++k)
      text += (k == 0 ? "" : ", ") + json_string(one_line(plan.keys[k])) + ": " +
              json_string(shown_value(plan.runs[i].values[k]));
    text += "}, \"status\": " + json_string(row.status) +
            ", \"monitor\": " + json_string(one_line(row.monitor)) +
            ", \"best\": " + (row.best ? json_number(*row.best) : "null") +
            ", \"best_epoch\": " + text_or(row.best_epoch, "null") +
            ", \"epochs\": " + text_or(row.epochs, "null") + ", \"steps\": " + text_or(row.steps, "null") +
            ", \"note\": " + json_string(one_line(row.note)) + "}";
  }
  return text + "\n]}\n";
}

std::string sweep_text(const SweepPlan& plan, const std::vector<SweepRow>& rows) {
  std::vector<TextColumn> columns{{"run"}};
  for (const std::string& key : plan.keys) columns.push_back({.title = one_line(key)});
  bool has_notes = false;
  for (const SweepRow& row : rows) has_notes = has_notes || !row.note.empty();
  for (const char* title : {"status", "best", "value", "epoch", "epochs", "steps"})
    columns.push_back(
        {.title = title, .right = title[0] == 'v' || title[0] == 'e' || title == std::string_view("steps")});
  if (has_notes) columns.push_back({.title = "note"});
  std::vector<std::vector<std::string>> cells;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const SweepRow& row = rows[i];
    auto& line = cells.emplace_back(std::vector{plan.runs[i].name});
    for (const std::string& value : plan.runs[i].values) line.push_back(shown_value(value));
    for (std::string cell :
         {row.status, row.best ? one_line(row.monitor) : "-", row.best ? metric_text(*row.best) : "-",
          text_or(row.best_epoch, "-"), text_or(row.epochs, "-"), text_or(row.steps, "-")})
      line.push_back(std::move(cell));
    if (has_notes) line.push_back(shortened(one_line(row.note), kMaxNoteWidth));
  }
  return table_text(columns, cells);
}

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
