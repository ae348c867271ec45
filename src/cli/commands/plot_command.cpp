#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "charts/html_page.h"
#include "cli/commands/commands.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/suggest.h"
#include "kindling/loggers/terminal.h"
#include "loggers/metric_charts.h"
#include "runs/run_files.h"
#include "runs/run_folder.h"
#include "runs/run_page.h"
#include "runs/sweep_plan.h"
#include "runs/validation_page.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

constexpr int kPlotRows = 14, kMostPlotColumns = 100;
constexpr std::size_t kMostChartsInOneColumn = 3;

// A run to draw, whose files stay at their place for the pages that refer to them.
struct PlottedRun {
  RunFiles files;
  RunMetrics metrics;
};

// Returns the runs of a sweep that have records, in their order.
std::vector<fs::path> runs_of_sweep(const fs::path& sweep) {
  std::vector<fs::path> runs;
  for (const auto& entry : fs::directory_iterator(sweep))
    if (const auto run = newest_run_with(entry.path(), {"metrics.jsonl"})) runs.push_back(*run);
  std::ranges::sort(runs);
  if (!runs.empty()) return runs;
  throw ConfigError({.place = sweep.string(),
                     .found = "no run of the sweep has a metrics.jsonl",
                     .wanted = "a run with records"});
}

// Returns the run itself, the newest one of a directory DIR/NAME, or all runs of a sweep.
std::vector<fs::path> plotted_folders(const fs::path& path) {
  const std::initializer_list<const char*> files{"metrics.jsonl", "run.json", "config.toml"};
  for (const char* const name : files)
    if (fs::exists(path / name)) return {path};
  fs::path folder = path.lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  if (is_sweep(folder)) return runs_of_sweep(folder);
  const auto newest = newest_run_with(folder, files);
  if (newest) return {*newest};
  throw ConfigError({.place = path.string(),
                     .found = fs::exists(path) ? "not a run directory" : "no such file or directory",
                     .wanted = "a run directory, or a directory of runs",
                     .remedy = "for example runs/digits/0001"});
}

PlottedRun read_run(const fs::path& folder) {
  const fs::path records = folder / "metrics.jsonl";
  if (!fs::exists(records))
    throw ConfigError({.place = folder.string(),
                       .found = "it has no metrics.jsonl",
                       .wanted = "a run with records",
                       .remedy = "run.jsonl = true writes them"});
  PlottedRun run{.files = read_run_files(folder), .metrics = {}};
  RunRecords file = read_metrics_file(records);
  if (file.num_damaged_lines > 0)
    std::cerr << "warning: " << records.string() << ": skipped " << file.num_damaged_lines
              << (file.num_damaged_lines == 1 ? " line that is" : " lines that are") << " not a record\n";
  run.metrics = std::move(file.metrics);
  return run;
}

// Throws ConfigError for the first name that no run has.
void require_metrics(std::span<const LabelledMetrics> runs, const std::vector<std::string>& wanted) {
  std::vector<std::string> known;
  for (const bool of_machine : {false, true})
    for (std::string& name : metric_names(runs, of_machine)) known.push_back(std::move(name));
  for (const std::string& name : wanted) {
    if (std::ranges::find(known, name) != known.end()) continue;
    const std::string close = nearest(name, known);
    throw ConfigError({.place = "--metric " + name,
                       .found = runs.size() == 1 ? "the run has no such metric" : "no run has this metric",
                       .wanted = known.empty() ? "a run with records" : "one of " + list_names(known),
                       .remedy = close.empty() ? "" : "did you mean '" + close + "'?"});
  }
}

// Returns the losses and the monitored metric, which fit on a screen. Of several runs, only one of the
// losses.
std::vector<std::string> selected_metrics(std::span<const PlottedRun> runs,
                                          std::span<const LabelledMetrics> labelled) {
  const std::string monitored = runs[0].files.value("best.name");
  const std::vector<std::string> all = metric_names(labelled, /*of_machine=*/false);
  std::vector<std::string> losses, chosen;
  for (const std::string& name : all)
    if (family_of(name) == "loss") losses.push_back(name);
  if (runs.size() > 1 && !losses.empty()) {
    const auto validation = std::ranges::find(losses, "val_loss");
    losses = {validation == losses.end() ? losses.front() : *validation};
  }
  for (const std::string& name : all) {
    const bool is_monitored = runs.size() > 1 ? name == monitored : family_of(name) == family_of(monitored);
    if (is_monitored || std::ranges::find(losses, name) != losses.end()) chosen.push_back(name);
  }
  return chosen.empty() ? all : chosen;
}

std::vector<Chart> charts_for(std::span<const LabelledMetrics> runs, const std::vector<std::string>& names) {
  return runs.size() == 1 ? charts_of_run(*runs[0].metrics, names) : charts_of_runs(runs, names);
}

void print_charts(const std::vector<Chart>& charts, const std::string& color_option) {
  const bool color = color_option == "always" || (color_option == "auto" && wants_color(STDOUT_FILENO));
  const int columns = std::min(terminal_width(STDOUT_FILENO), kMostPlotColumns);
  for (const Chart& chart : charts) std::cout << to_text(chart, columns, kPlotRows, color);
}

void write_page(std::span<const PlottedRun> runs, const std::vector<std::string>& names,
                const fs::path& file) {
  if (runs.size() == 1)
    return write_file_atomically(file, to_html(page_of_run(runs[0].files, runs[0].metrics)));
  std::vector<ComparedRun> compared;
  for (const auto& [files, metrics] : runs) compared.push_back({files, metrics});
  write_file_atomically(file, to_html(page_of_runs(compared, names)));
}

}  // namespace

int plot_command(const CommandContext& context) {
  const PlotRequest& request = context.request.plot;
  std::vector<PlottedRun> runs;
  for (const fs::path& path : request.runs)
    for (const fs::path& folder : plotted_folders(path)) runs.push_back(read_run(folder));
  std::vector<LabelledMetrics> labelled;
  for (const auto& [files, metrics] : runs) labelled.push_back({files.name(), &metrics});
  require_metrics(labelled, request.metrics);
  const std::vector<std::string> all =
      request.metrics.empty() ? metric_names(labelled, /*of_machine=*/false) : request.metrics;
  if (!request.svg.empty()) {
    const auto charts = charts_for(labelled, all);
    write_file_atomically(request.svg, to_svg_grid(charts, charts.size() > kMostChartsInOneColumn ? 2 : 1));
  }
  if (!request.html.empty()) write_page(runs, all, request.html);
  if (!request.svg.empty() || !request.html.empty()) return 0;
  if (all.empty()) {
    std::cerr << "the run has no records yet\n";
    return 0;
  }
  print_charts(
      charts_for(labelled, request.metrics.empty() ? selected_metrics(runs, labelled) : request.metrics),
      context.request.color);
  if (runs.size() == 1 && request.metrics.empty()) {
    print_charts(validation_charts(runs[0].files), context.request.color);
    std::cout << validation_text(runs[0].files);
  }
  return 0;
}

}  // namespace kindling
