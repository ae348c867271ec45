#include "runs/metrics_difference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/joined.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/number_text.h"
#include "loggers/metric_charts.h"
#include "loggers/run_metrics.h"

namespace kindling {
namespace {

constexpr std::size_t kMaxMetricsBytes = std::size_t{1} << 32;

// A line of metrics.jsonl.
struct MetricsLine {
  // At one step: its own line, then a validation's, then the epoch's.
  enum class Kind { step, validation, epoch };

  std::int64_t step = 0;
  Kind kind = Kind::step;
  std::map<std::string, double> values{};

  auto place() const { return std::tuple(step, kind); }
  std::string name() const {
    return "step " + std::to_string(step) +
           (kind == Kind::epoch        ? " (epoch)"
            : kind == Kind::validation ? " (validation)"
                                       : "");
  }
};

// Returns the line without metrics of the machine; nothing if it is not a record.
std::optional<MetricsLine> parsed_line(std::string_view text) {
  const auto record = record_of_line(text);
  if (!record) return std::nullopt;
  constexpr std::array kKinds{MetricsLine::Kind::step, MetricsLine::Kind::epoch,
                              MetricsLine::Kind::validation};  // in the order of Record::Kind
  MetricsLine line{.step = record->global_step, .kind = kKinds[static_cast<std::size_t>(record->kind)]};
  line.values["global_step"] = static_cast<double>(record->global_step);
  if (record->epoch > 0) line.values["epoch"] = static_cast<double>(record->epoch);
  for (const auto& [name, value] : record->values)
    if (!is_machine_metric(name)) line.values[name] = value;
  return line;
}

using Columns = std::map<MetricsLine::Kind, std::set<std::string>>;

struct MetricsFile {
  std::vector<MetricsLine> lines{};
  bool is_cut_off = false;

  Columns columns() const {
    Columns columns;
    for (const MetricsLine& line : lines)
      for (const auto& [name, value] : line.values) columns[line.kind].insert(name);
    return columns;
  }
};

// Columns by kind of record that both files have, and those that one file lacks although it has such records.
struct ComparedColumns {
  Columns common{}, only_a{}, only_b{};

  ComparedColumns(const Columns& a, const Columns& b) {
    for (const auto& [kind, names] : a) {
      const auto other = b.find(kind);
      if (other == b.end()) continue;
      std::ranges::set_intersection(names, other->second, inserter_of(common[kind]));
      std::ranges::set_difference(names, other->second, inserter_of(only_a[kind]));
      std::ranges::set_difference(other->second, names, inserter_of(only_b[kind]));
    }
  }

  // Without the two that say where a record stands.
  bool has_values() const {
    return std::ranges::any_of(common, [](const auto& one) {
      return std::ranges::any_of(
          one.second, [](const std::string& name) { return name != "global_step" && name != "epoch"; });
    });
  }

 private:
  static std::insert_iterator<std::set<std::string>> inserter_of(std::set<std::string>& names) {
    return {names, names.end()};
  }
};

// "lr, mine of step records; train_acc of epoch records"; empty for none.
std::string column_text(const Columns& columns) {
  constexpr std::array kKinds{"step", "validation", "epoch"};
  std::vector<std::string> texts;
  for (const auto& [kind, names] : columns)
    if (!names.empty())
      texts.push_back(joined(std::vector(names.begin(), names.end()), ", ",
                             [](const std::string& name) { return one_line(name); }) +
                      " of " + kKinds[static_cast<std::size_t>(kind)] + " records");
  return joined(texts, "; ");
}

MetricsFile read_metrics(const std::filesystem::path& path) {
  const std::string text = read_file(path, kMaxMetricsBytes);
  MetricsFile file;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    if (auto line = parsed_line(std::string_view(text).substr(begin, end - begin)))
      file.lines.push_back(std::move(*line));
    else if (end == text.size())
      file.is_cut_off = true;
    else
      throw DataError({.place = path.string() + ":" + std::to_string(file.lines.size() + 1),
                       .found = "the line is not a record",
                       .wanted = "a JSON object of numbers"});
  }
  return file;
}

bool is_same(double a, double b, const MetricTolerance& tolerance) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return true;
  const double distance = std::abs(a - b);
  return std::isfinite(distance) &&
         distance <= tolerance.absolute + tolerance.relative * std::max(std::abs(a), std::abs(b));
}

// A row for each of these metrics that differs: its name, both values and their difference.
std::vector<std::vector<std::string>> rows_of(const MetricsLine& a, const MetricsLine& b,
                                              const std::set<std::string>& names,
                                              const MetricTolerance& tolerance) {
  std::vector<std::vector<std::string>> rows;
  for (const std::string& name : names) {
    const auto x = a.values.find(name), y = b.values.find(name);
    const bool is_in_a = x != a.values.end(), is_in_b = y != b.values.end();
    if (is_in_a && is_in_b && !is_same(x->second, y->second, tolerance))
      rows.push_back({one_line(name), number_text(x->second), number_text(y->second),
                      short_text(y->second - x->second, 3)});
    if (is_in_a != is_in_b)
      rows.push_back({one_line(name), is_in_a ? number_text(x->second) : "missing",
                      is_in_b ? number_text(y->second) : "missing", ""});
  }
  return rows;
}

// Records that only one file has.
struct OneSidedRecords {
  std::size_t count = 0;
  const MetricsLine* first = nullptr;

  void add(const MetricsLine& line) {
    if (count++ == 0) first = &line;
  }
  std::string text(const char* side) const {
    return counted(count, "record") + " only in " + side + ", from " + first->name() + " on";
  }
};

}  // namespace

PartDifference difference_of_metrics(const std::filesystem::path& a, const std::filesystem::path& b,
                                     const MetricTolerance& tolerance) {
  const MetricsFile in_a = read_metrics(a), in_b = read_metrics(b);
  PartDifference difference{
      .part = "metrics",
      .columns = {{.title = "metric"}, {.title = "A"}, {.title = "B"}, {.title = "B - A"}}};
  const ComparedColumns columns(in_a.columns(), in_b.columns());
  OneSidedRecords only_a, only_b;
  std::size_t common = 0;
  const MetricsLine* first = nullptr;
  for (auto x = in_a.lines.begin(), y = in_b.lines.begin(); x != in_a.lines.end() || y != in_b.lines.end();) {
    if (y == in_b.lines.end() || (x != in_a.lines.end() && x->place() < y->place())) {
      only_a.add(*x++);
    } else if (x == in_a.lines.end() || y->place() < x->place()) {
      only_b.add(*y++);
    } else {
      ++common;
      if (first == nullptr &&
          !(difference.rows = rows_of(*x, *y, columns.common.at(x->kind), tolerance)).empty())
        first = &*x;
      ++x, ++y;
    }
  }
  std::vector<std::string> clauses;
  if (first != nullptr)
    clauses.push_back("first difference at " + first->name() + ", of " + counted(common, "common record"));
  if (only_a.count > 0) clauses.push_back(only_a.text("A"));
  if (only_b.count > 0) clauses.push_back(only_b.text("B"));
  if (in_a.is_cut_off != in_b.is_cut_off)
    clauses.push_back(std::string("the last line of ") + (in_a.is_cut_off ? "A" : "B") + " is cut off");
  if (common > 0 && !columns.has_values()) clauses.emplace_back("no metric in common");
  difference.is_equal = clauses.empty();
  difference.summary = clauses.empty() ? "equal, " + counted(common, "record") : joined(clauses, "; ");
  for (const auto& [side, only] : {std::pair("B", &columns.only_a), std::pair("A", &columns.only_b)})
    if (const std::string text = column_text(*only); !text.empty())
      difference.summary += std::string("; not compared, because ") + side + " lacks them: " + text;
  return difference;
}

}  // namespace kindling
