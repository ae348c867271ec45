#include "runs/run_page.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

#include "base/joined.h"
#include "kindling/base/number_text.h"
#include "loggers/metric_charts.h"
#include "loggers/metric_text.h"
#include "runs/page_texts.h"
#include "runs/validation_page.h"

namespace kindling {
namespace {

constexpr std::size_t kMostColumns = 24;  // of the table of epochs
constexpr std::size_t kMostClasses = 40;  // of a confusion matrix in full
constexpr std::size_t kMostRows = 2000;   // of a matrix

// Five digits, and for numbers of a usual size as many decimals in each row.
std::string cell_text(std::string_view metric, double value) {
  const double size = std::abs(value);
  const bool is_plain = size == 0 || (size >= 1e-3 && size < 1e4);
  if (metric == "epoch_time_s") return fixed_text(value, size < 100 ? 3 : 1);
  if (metric == "samples_per_s") return fixed_text(value, 0);
  return metric != "lr" && is_plain ? fixed_text(value, 4) : short_text(value, 5);
}

std::string duration_text(double seconds) {
  return seconds < 60 ? fixed_text(seconds, seconds < 10 ? 2 : 1) + " s" : clock_text(seconds);
}

using Facts = std::vector<std::pair<std::string, std::string>>;

void add_fact(Facts& facts, std::string name, std::string value) {
  if (!value.empty()) facts.emplace_back(std::move(name), std::move(value));
}

std::string best_text(const RunFiles& files, const RunMetrics& metrics, const RunPageOptions& options) {
  if (const std::string name = files.value("best.name"); !name.empty()) {
    const double value = number_or_nan(files.value("best.value"));
    return name + " " + metric_text(value) + ", epoch " + files.value("best.epoch");
  }
  const MetricSeries* const series = metrics.find(options.monitor);
  if (series == nullptr) return {};
  const auto& best = options.higher_is_better ? series->highest() : series->lowest();
  if (!best) return {};
  return options.monitor + " " + metric_text(best->value) + ", epoch " + number_text(best->epoch);
}

std::string skipped_text(const RunMetrics& metrics) {
  const MetricSeries* const skipped = metrics.find("skipped_steps");
  return skipped == nullptr ? "" : count_text(skipped->sum());
}

std::string not_finite_text(const RunMetrics& metrics) {
  std::vector<std::string> names;
  for (const std::string& name : metrics.names())
    if (const auto number = metrics.find(name)->num_not_finite(); number > 0)
      names.push_back(name + " (" + std::to_string(number) + ")");
  return joined(names, ", ");
}

std::string parameters_text(const RunFiles& files) {
  double total = 0;
  for (const auto& layer : files.layers) total += number_or_nan(layer[4]);
  return files.layers.empty() || std::isnan(total) ? "" : count_text(total);
}

std::string starts_text(const RunFiles& files) {
  const std::size_t starts = files.commands.size();
  return starts < 2 ? "" : std::to_string(starts) + " starts";
}

// "digits: 1,438 training, 359 validation samples"
std::string data_text(const RunFiles& files) {
  std::vector<std::string> sets;
  for (const auto& [key, name] : {std::pair("data.train", " training"), {"data.val", " validation"}})
    if (const double samples = number_or_nan(files.value(key)); !std::isnan(samples))
      sets.push_back(count_text(samples) + name);
  const std::string name = files.value("data.name");
  if (sets.empty()) return name;
  return name + (name.empty() ? "" : ": ") + joined(sets, ", ") + " samples";
}

// "0123456789ab (main)"
std::string git_text(const RunFiles& files) {
  constexpr std::size_t kDigits = 12;
  const std::string commit = files.value("git.commit").substr(0, kDigits), branch = files.value("git.branch");
  return commit + (branch.empty() ? "" : (commit.empty() ? "(" : " (") + branch + ")");
}

PageSection results_of(const RunFiles& files, const RunMetrics& metrics, const RunPageOptions& options) {
  Facts facts;
  add_fact(facts, "best", best_text(files, metrics, options));
  add_fact(facts, "epochs", count_text(static_cast<double>(metrics.num_epochs())));
  add_fact(facts, "steps", count_text(static_cast<double>(metrics.global_step())));
  if (const MetricSeries* const time = metrics.find("epoch_time_s"))
    add_fact(facts, "training time", duration_text(time->sum()));
  add_fact(facts, "parameters", parameters_text(files));
  add_fact(facts, "data", data_text(files));
  add_fact(facts, "git commit", git_text(files));
  add_fact(facts, "device", files.value("device"));
  if (const std::string number = files.value("processes"); number != "1") add_fact(facts, "ranks", number);
  add_fact(facts, "seed", files.value("seed"));
  add_fact(facts, "resumed", starts_text(files));
  add_fact(facts, "skipped steps", skipped_text(metrics));
  add_fact(facts, "not finite", not_finite_text(metrics));
  return {.parts = {PageFacts{std::move(facts)}}};
}

PageSection curves_of(const RunMetrics& metrics) {
  const std::array all{LabelledMetrics{"", &metrics}};
  PageSection section{.title = "Curves"};
  const auto names = metric_names(all, /*of_machine=*/false);
  if (names.empty()) {
    section.parts.emplace_back(PageNote{"The run has no records yet."});
    return section;
  }
  section.parts.emplace_back(PageCharts{charts_of_run(metrics, names)});
  const auto is_thinned = [&](const std::string& name) { return !metrics.find(name)->has_all(); };
  section.parts.emplace_back(PageNote{
      std::string("Drag across a chart to zoom, double-click to zoom out; click a name to hide its curve.") +
      (std::ranges::any_of(names, is_thinned)
           ? " Curves of many values show the smallest and the largest of neighbouring ones; metrics.jsonl "
             "has all."
           : "")});
  return section;
}

// The names of the columns after epoch and step.
std::vector<std::string> epoch_columns(const RunMetrics& metrics) {
  std::vector<std::string> columns;
  for (const std::string& name : metrics.names()) {
    const bool is_of_epochs = std::ranges::any_of(
        metrics.epochs(), [&](const Record& epoch) { return epoch.find(name) != nullptr; });
    const bool is_wanted = !is_machine_metric(name) && !is_part_of_metric(name);
    if (is_of_epochs && is_wanted && columns.size() < kMostColumns) columns.push_back(name);
  }
  for (const char* const name : {"epoch_time_s", "samples_per_s"})
    if (metrics.find(name) != nullptr) columns.emplace_back(name);
  return columns;
}

PageSection epochs_of(const RunMetrics& metrics) {
  std::vector<Record> epochs = metrics.epochs();
  if (metrics.last_epoch() && epochs.back().epoch != metrics.last_epoch()->epoch)
    epochs.push_back(*metrics.last_epoch());
  const std::vector<std::string> columns = epoch_columns(metrics);
  PageTable table{.titles = {"epoch", "step"}};
  table.titles.insert(table.titles.end(), columns.begin(), columns.end());
  for (const Record& epoch : epochs) {
    std::vector<std::string> cells{std::to_string(epoch.epoch),
                                   count_text(static_cast<double>(epoch.global_step))};
    for (const std::string& name : columns) {
      const double* const value = epoch.find(name);
      cells.push_back(value == nullptr ? "" : cell_text(name, *value));
    }
    table.rows.push_back(std::move(cells));
  }
  PageSection section{.title = "Epochs", .parts = {std::move(table)}};
  if (metrics.epoch_stride() > 1)
    section.parts.emplace_back(PageNote{"Every " + std::to_string(metrics.epoch_stride()) + "th of " +
                                        count_text(static_cast<double>(metrics.num_epochs())) +
                                        " epochs, and the last; metrics.csv has all."});
  return section;
}

// Values named NAME[row][column], such as those of a confusion matrix.
struct ValueMatrix {
  std::string name;
  std::vector<std::vector<double>> cells;  // square or not; 0 for values that the record lacks
};

struct CellName {
  std::string_view matrix;
  std::size_t row = 0, column = 0;
};

// Takes "[12]" from the end of `text`.
std::optional<std::size_t> take_index(std::string_view& text) {
  const std::size_t open = text.rfind('[');
  if (open == std::string_view::npos || !text.ends_with(']')) return std::nullopt;
  const char* const end = text.data() + text.size() - 1;
  std::size_t index = 0;
  const auto [stop, error] = std::from_chars(text.data() + open + 1, end, index);
  if (error != std::errc() || stop != end || index >= kMostRows) return std::nullopt;
  text = text.substr(0, open);
  return index;
}

std::optional<CellName> cell_name(std::string_view text) {
  const auto column = take_index(text);
  if (!column) return std::nullopt;
  const auto row = take_index(text);
  if (!row || text.empty()) return std::nullopt;
  return CellName{.matrix = text, .row = *row, .column = *column};
}

// Returns the matrices in a record, in its order.
std::vector<ValueMatrix> matrices_of(const Record& record) {
  std::vector<ValueMatrix> matrices;
  for (const auto& [name, value] : record.values) {
    const auto cell = cell_name(name);
    if (!cell) continue;
    auto found = std::ranges::find(matrices, cell->matrix, &ValueMatrix::name);
    if (found == matrices.end()) found = matrices.insert(found, {std::string(cell->matrix), {}});
    auto& cells = found->cells;
    if (cells.size() <= cell->row) cells.resize(cell->row + 1);
    if (cells[cell->row].size() <= cell->column) cells[cell->row].resize(cell->column + 1);
    cells[cell->row][cell->column] = value;
  }
  return matrices;
}

// Returns row, column and value of the largest entries off the diagonal, the largest first.
std::vector<std::tuple<std::size_t, std::size_t, double>> largest_off_diagonal(const ValueMatrix& matrix,
                                                                               std::size_t count) {
  std::vector<std::tuple<std::size_t, std::size_t, double>> entries;
  for (std::size_t row = 0; row < matrix.cells.size(); ++row)
    for (std::size_t column = 0; column < matrix.cells[row].size(); ++column)
      if (row != column && matrix.cells[row][column] > 0)
        entries.emplace_back(row, column, matrix.cells[row][column]);
  std::ranges::stable_sort(entries, std::ranges::greater{},
                           [](const auto& entry) { return std::get<2>(entry); });
  entries.resize(std::min(entries.size(), count));
  return entries;
}

PageSection matrix_of(const ValueMatrix& matrix, std::int64_t epoch) {
  PageSection section{.title = matrix.name + ", epoch " + std::to_string(epoch)};
  const bool is_confusion = matrix.name.find("confusion") != std::string::npos;
  if (matrix.cells.size() <= kMostClasses) {
    section.parts.emplace_back(PageMatrix{.rows = is_confusion ? "label" : "first index",
                                          .columns = is_confusion ? "prediction" : "second index",
                                          .cells = matrix.cells});
    return section;
  }
  PageTable table{.titles = {"label", "prediction", "count"}};
  for (const auto& [row, column, value] : largest_off_diagonal(matrix, kMostClasses))
    table.rows.push_back({std::to_string(row), std::to_string(column), number_text(value)});
  section.parts.emplace_back(PageNote{"The " + std::to_string(table.rows.size()) +
                                      " largest entries off the diagonal of " +
                                      std::to_string(matrix.cells.size()) + " classes."});
  section.parts.emplace_back(std::move(table));
  return section;
}

// Means over epochs, such as of the fractions of their time.
double mean_of(const MetricSeries& series) {
  const auto number = series.num_values() - series.num_not_finite();
  return number == 0 ? std::nan("") : series.sum() / static_cast<double>(number);
}

std::vector<std::string> machine_row(const std::string& name, const MetricSeries& series) {
  const auto text = [&](double value) {
    if (name.ends_with("_bytes")) return bytes_text(value, 4);
    if (name == "epoch_time_s") return duration_text(value);
    if (name == "data_wait_share") return fixed_text(100 * value, 1) + " %";
    if (name.starts_with("step_time_s/")) return short_text(1000 * value, 4) + " ms";
    return name == "samples_per_s" || value == std::floor(value) ? count_text(value) : short_text(value, 4);
  };
  const bool has_total =
      name != "samples_per_s" && name != "data_wait_share" && !name.starts_with("step_time_s/");
  return {name, text(mean_of(series)), text(series.last().value), has_total ? text(series.sum()) : ""};
}

PageSection speed_of(const RunMetrics& metrics) {
  PageSection section{.title = "Speed and transfers"};
  PageTable table{.titles = {"", "mean of epochs", "last epoch", "all epochs"}, .num_text_columns = 1};
  PageBars bars;
  constexpr std::string_view kShare = "time_share/";
  for (const std::string& name : metrics.names()) {
    const MetricSeries& series = *metrics.find(name);
    if (name.starts_with(kShare))
      bars.bars.emplace_back(name.substr(kShare.size()), mean_of(series));
    else if (is_machine_metric(name))
      table.rows.push_back(machine_row(name, series));
  }
  if (table.rows.empty()) return {};
  section.parts.emplace_back(std::move(table));
  if (!bars.bars.empty()) {
    section.parts.emplace_back(PageNote{"Fractions of the time of all epochs:"});
    section.parts.emplace_back(std::move(bars));
  }
  std::vector<std::string> drawn{"epoch_time_s", "samples_per_s"};
  std::ranges::copy_if(metrics.names(), std::back_inserter(drawn),
                       [](const std::string& name) { return name.starts_with("step_time_s/"); });
  if (metrics.num_epochs() > 1) section.parts.emplace_back(PageCharts{charts_of_run(metrics, drawn)});
  return section;
}

PageSection model_of(const RunFiles& files) {
  if (files.layers.empty()) return {};
  PageTable table{.titles = {"layer", "type", "input", "output", "parameters"},
                  .rows = files.layers,
                  .num_text_columns = 4};
  for (auto& row : table.rows)
    if (const double number = number_or_nan(row[4]); !std::isnan(number)) row[4] = count_text(number);
  table.rows.push_back({"total", "", "", "", parameters_text(files)});
  table.marked_row = table.rows.size() - 1;
  return {.title = "Model", .parts = {std::move(table)}};
}

PageSection events_of(const RunFiles& files) {
  if (files.events.empty()) return {};
  PageTable table{.titles = {"time", "event", ""}, .num_text_columns = 3};
  for (const auto& [time, level, text] : files.events)
    table.rows.push_back({time.substr(0, 19), level, text});
  PageSection section{.title = "Starts, warnings and errors", .parts = {std::move(table)}};
  if (files.num_events > files.events.size())
    section.parts.emplace_back(PageNote{"The latest " + std::to_string(files.events.size()) + " of " +
                                        std::to_string(files.num_events) + "; log.txt has all."});
  return section;
}

PageSection config_of(const RunFiles& files) {
  PageSection section{.title = "Command and config"};
  PageTable overrides{.titles = {"start", "key", "value on the command line"}, .num_text_columns = 3};
  for (std::size_t i = 0; i < files.commands.size(); ++i)
    for (const auto& [key, value] : overrides_of(files.commands[i]))
      overrides.rows.push_back({std::to_string(i + 1), key, value});
  if (!files.commands.empty()) section.parts.emplace_back(PageText{.text = joined(files.commands, "\n")});
  if (!overrides.rows.empty()) section.parts.emplace_back(std::move(overrides));
  if (!files.config.empty())
    section.parts.emplace_back(PageText{.text = files.config, .summary = "config.toml, with every key"});
  return section.parts.empty() ? PageSection{} : section;
}

// What run.json says that the page does not show elsewhere.
PageSection machine_of(const RunFiles& files) {
  constexpr std::array<std::string_view, 7> kElsewhere{"status",      "reason",  "device", "seed",
                                                       "global_step", "started", "written"};
  Facts facts;
  for (const auto& [key, value] : files.summary) {
    const bool is_elsewhere = std::ranges::find(kElsewhere, key) != kElsewhere.end() ||
                              key.starts_with("metrics.") || key.starts_with("best.") ||
                              key.starts_with("validation_report.") ||
                              (key.starts_with("data.") && key != "data.checksum") || key == "git.branch";
    std::string name = key;
    for (char& c : name) c = c == '_' || c == '.' ? ' ' : c;
    if (!is_elsewhere) add_fact(facts, name, key == "seconds" ? duration_text(number_or_nan(value)) : value);
  }
  return facts.empty() ? PageSection{}
                       : PageSection{.title = "Versions and machine", .parts = {PageFacts{facts}}};
}

// Nothing in the directory tells an active run from one that was killed.
void set_status(HtmlPage& page, const RunFiles& files) {
  page.status = files.value("status");
  if (page.status == "running" && page.refresh_s == 0) page.status = "running, or killed";
  const std::string reason = files.value("reason");
  if (!reason.empty() && reason != page.status) page.status += " (" + reason + ")";
  if (files.value("status") == "finished") page.tone = HtmlPage::Tone::good;
  if (files.value("status") == "diverged" || files.value("status") == "failed")
    page.tone = HtmlPage::Tone::bad;
}

std::string footer_of(const RunFiles& files) {
  const std::string version = files.value("kindling");
  return "Kindling" + (version.empty() ? "" : " " + version) + " · every value is in metrics.jsonl";
}

}  // namespace

HtmlPage page_of_run(const RunFiles& files, const RunMetrics& metrics, const RunPageOptions& options) {
  HtmlPage page{.title = files.name(),
                .refresh_s = options.refresh_s,
                .written_s = options.written_s,
                .max_age_s = options.max_age_s,
                .footer = footer_of(files)};
  set_status(page, files);
  if (const std::string started = files.value("started"); !started.empty())
    page.subtitle = "started " + started + ", as of " + files.value("written");
  page.sections = {results_of(files, metrics, options), curves_of(metrics)};
  if (metrics.last_epoch()) {
    page.sections.push_back(epochs_of(metrics));
    for (const ValueMatrix& matrix : matrices_of(*metrics.last_epoch()))
      page.sections.push_back(matrix_of(matrix, metrics.last_epoch()->epoch));
    for (PageSection& section : validation_sections(files)) page.sections.push_back(std::move(section));
    page.sections.push_back(speed_of(metrics));
  }
  for (auto section : {model_of(files), events_of(files), config_of(files), machine_of(files)})
    page.sections.push_back(std::move(section));
  std::erase_if(page.sections, [](const PageSection& section) { return section.parts.empty(); });
  return page;
}

HtmlPage page_of_runs(std::span<const ComparedRun> runs, std::span<const std::string> names) {
  PageTable table{.titles = {"run", "status", "best", "epochs", "steps", "time"}, .num_text_columns = 3};
  std::vector<LabelledMetrics> labelled;
  for (const auto& [files, metrics] : runs) {
    labelled.push_back({files.name(), &metrics});
    const MetricSeries* const time = metrics.find("epoch_time_s");
    table.rows.push_back({files.name(), files.value("status"), best_text(files, metrics, {}),
                          count_text(static_cast<double>(metrics.num_epochs())),
                          count_text(static_cast<double>(metrics.global_step())),
                          time == nullptr ? "" : duration_text(time->sum())});
  }
  HtmlPage page{.title = std::to_string(runs.size()) + " runs", .footer = "Kindling"};
  page.sections.push_back({.title = "", .parts = {std::move(table)}});
  page.sections.push_back({.title = "Curves", .parts = {PageCharts{charts_of_runs(labelled, names)}}});
  return page;
}

}  // namespace kindling
