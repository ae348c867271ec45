#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "base/joined.h"
#include "cli/diff/differences.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/number_text.h"

namespace kindling {
namespace {

constexpr std::size_t kMaxMetricsBytes = std::size_t{1} << 32;

// Metrics of the machine, not of the training.
constexpr std::array kMachineMetrics{
    "epoch_time_s",          "samples_per_s",        "data_wait_share",      "host_waits",
    "device_to_host_copies", "device_to_host_bytes", "host_to_device_bytes",
};

// A line of metrics.jsonl.
struct MetricsLine {
  std::int64_t step = 0;
  // At one step: its own line, then a validation's, then the epoch's.
  enum class Kind { step, validation, epoch } kind = Kind::step;
  std::map<std::string, double> values{};

  auto place() const { return std::tuple(step, kind); }
  std::string name() const {
    return "step " + std::to_string(step) +
           (kind == Kind::epoch        ? " (epoch)"
            : kind == Kind::validation ? " (validation)"
                                       : "");
  }
};

// Empty if the line is not a record.
std::optional<MetricsLine> parsed_line(std::string_view text) {
  const auto json = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.empty()) return std::nullopt;
  MetricsLine line{.kind = json.begin().key() == "epoch"      ? MetricsLine::Kind::epoch
                           : json.contains("train_loss_step") ? MetricsLine::Kind::step
                                                              : MetricsLine::Kind::validation};
  for (const auto& [name, value] : json.items()) {
    if (!value.is_number() && !value.is_null()) return std::nullopt;
    if (name == "global_step" && value.is_number_integer()) line.step = value.get<std::int64_t>();
    if (std::ranges::find(kMachineMetrics, name) == kMachineMetrics.end() && !name.starts_with("time_share/"))
      line.values[name] = value.is_null() ? std::nan("") : value.get<double>();  // null: not finite
  }
  return line;
}

struct MetricsFile {
  std::vector<MetricsLine> lines{};
  bool is_cut_off = false;
};

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

bool is_same(double a, double b, const Tolerance& tolerance) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return true;
  const double distance = std::abs(a - b);
  return std::isfinite(distance) &&
         distance <= tolerance.absolute + tolerance.relative * std::max(std::abs(a), std::abs(b));
}

// A row for each metric that differs: its name, both values and their difference.
std::vector<std::vector<std::string>> rows_of(const MetricsLine& a, const MetricsLine& b,
                                              const Tolerance& tolerance) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, value] : a.values) {
    const auto other = b.values.find(name);
    if (other == b.values.end())
      rows.push_back({one_line(name), number_text(value), "missing", ""});
    else if (!is_same(value, other->second, tolerance))
      rows.push_back({one_line(name), number_text(value), number_text(other->second),
                      short_text(other->second - value, 3)});
  }
  for (const auto& [name, value] : b.values)
    if (!a.values.contains(name)) rows.push_back({one_line(name), "missing", number_text(value), ""});
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
                                     const Tolerance& tolerance) {
  const MetricsFile in_a = read_metrics(a), in_b = read_metrics(b);
  PartDifference difference{
      .part = "metrics",
      .columns = {{.title = "metric"}, {.title = "A"}, {.title = "B"}, {.title = "B - A"}}};
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
      if (first == nullptr && !(difference.rows = rows_of(*x, *y, tolerance)).empty()) first = &*x;
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
  difference.is_equal = clauses.empty();
  difference.summary = clauses.empty() ? "equal, " + counted(common, "record") : joined(clauses, "; ");
  return difference;
}

}  // namespace kindling
