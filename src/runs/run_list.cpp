#include "runs/run_list.h"

#include <algorithm>
#include <array>
#include <limits>
#include <system_error>
#include <tuple>
#include <utility>

#include "kindling/base/error.h"
#include "kindling/base/json.h"
#include "kindling/base/number_text.h"
#include "kindling/base/text.h"
#include "loggers/metric_text.h"
#include "runs/run_files.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;
constexpr std::size_t kColumnGap = 3, kMaxValueWidth = 24;

// Names of the directories in one, in order; hidden ones are not runs.
std::vector<std::string> folders_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    std::string name = entry->path().filename().string();
    if (!name.starts_with('.') && entry->is_directory(ignored)) names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  return names;
}

class RunSearch {
 public:
  RunSearch(RunList& list, const std::string& part) : list_(list), part_(part) {}

  // Returns whether the directory is a run.
  bool add(const fs::path& folder, const std::string& name) {
    if (name.find(part_) == std::string::npos) return fs::exists(folder / "run.json", ignored_);
    auto record = read_run_record(folder);
    if (!record) return false;
    list_.runs.push_back({.name = name, .record = *std::move(record), .config = num_configs_++});
    if (auto config = small_file(folder / "config.toml", kMaxConfigBytes))
      list_.configs.add(*std::move(config));
    else
      list_.configs.add_unknown();
    return true;
  }

  // Lists a directory that is not a run.
  void search(const fs::path& folder, const std::string& prefix, int depth) {
    const auto names = folders_in(folder);
    for (const std::string& name : names) {
      if (add(folder / name, prefix + name)) continue;
      const std::size_t before = list_.runs.size() + list_.num_skipped;
      if (depth > 1) search(folder / name, prefix + name + "/", depth - 1);
      if (list_.runs.size() + list_.num_skipped == before && (prefix + name).find(part_) != std::string::npos)
        ++list_.num_skipped;
    }
  }

 private:
  RunList& list_;
  const std::string& part_;
  std::size_t num_configs_ = 0;
  std::error_code ignored_;
};

std::string or_dash(const std::optional<std::int64_t>& number) {
  return number ? std::to_string(*number) : "-";
}

// Columns that every table has, and the cells of a run.
std::vector<TextColumn> fixed_columns() {
  return {{"run"},         {"status"},       {"best"},        {"value", true},
          {"epoch", true}, {"epochs", true}, {"steps", true}, {"time", true}};
}

std::vector<std::string> fixed_cells(const ListedRun& run) {
  const RunRecord& record = run.record;
  const bool has_best = record.best_value.has_value();
  return {one_line(run.name),
          one_line(record.status),
          has_best ? one_line(record.best_name) : "-",
          has_best ? metric_text(*record.best_value) : "-",
          has_best ? or_dash(record.best_epoch) : "-",
          or_dash(record.epochs),
          or_dash(record.steps),
          record.seconds && *record.seconds > 0 ? clock_text(*record.seconds) : "-"};
}

using Rows = std::vector<std::vector<std::string>>;

std::size_t column_width(const TextColumn& column, const Rows& rows, std::size_t index) {
  std::size_t width = display_width(column.title);
  for (const auto& row : rows) width = std::max(width, display_width(row[index]));
  return width;
}

// "optimizer.lr" as "lr", unless another key has the same last part.
std::string short_key(const std::string& key, const std::vector<std::string>& keys) {
  const auto last = [](const std::string& one) { return one.substr(one.rfind('.') + 1); };
  const auto same = std::ranges::count_if(keys, [&](const auto& one) { return last(one) == last(key); });
  return same == 1 ? last(key) : key;
}

std::string counts_text(const RunList& list, std::size_t num_hidden) {
  const auto unreadable =
      std::ranges::count_if(list.runs, [](const auto& run) { return run.record.status == "unreadable"; });
  std::string text = std::to_string(list.runs.size()) + (list.runs.size() == 1 ? " run" : " runs");
  if (unreadable > 0) text += ", " + std::to_string(unreadable) + " unreadable";
  if (list.num_skipped > 0)
    text += "; skipped " + std::to_string(list.num_skipped) +
            (list.num_skipped == 1 ? " directory that is not a run" : " directories that are not runs");
  if (num_hidden > 0)
    text += "; " + std::to_string(num_hidden) +
            (num_hidden == 1 ? " more config key differs" : " more config keys differ") + " (see --json)";
  return text + "\n";
}

std::string json_or_null(const std::optional<double>& value) { return value ? json_number(*value) : "null"; }
std::string json_or_null(const std::optional<std::int64_t>& value) {
  return value ? std::to_string(*value) : "null";
}

std::string json_of_run(const ListedRun& run, const RunList& list, const std::vector<std::string>& keys) {
  const RunRecord& record = run.record;
  const auto text = [](const std::string& raw) { return json_string(one_line(raw)); };
  std::string json = "{\"run\": " + text(run.name) + ", \"status\": " + text(record.status) +
                     ", \"reason\": " + text(record.reason) + ", \"started\": " + text(record.started) +
                     ", \"best\": ";
  json += !record.best_value
              ? "null"
              : "{\"name\": " + text(record.best_name) + ", \"value\": " + json_number(*record.best_value) +
                    ", \"epoch\": " + json_or_null(record.best_epoch) + "}";
  json += ", \"epochs\": " + json_or_null(record.epochs) + ", \"steps\": " + json_or_null(record.steps) +
          ", \"seconds\": " + json_or_null(record.seconds) + ", \"config\": {";
  bool is_first = true;
  for (const std::string& key : keys) {
    const std::string value = list.configs.value(run.config, key);
    if (value.empty()) continue;
    json += (is_first ? "" : ", ") + text(key) + ": " + text(value);
    is_first = false;
  }
  return json + "}}";
}

}  // namespace

RunList list_runs(const fs::path& dir, const std::string& name) {
  std::error_code ignored;
  if (!fs::is_directory(dir, ignored))
    throw ConfigError({.place = dir.string(),
                       .found = fs::exists(dir, ignored) ? "not a directory" : "no such directory",
                       .wanted = "the directory of runs",
                       .remedy = "kindling fit writes to the directory of the key run.dir, by default runs"});
  RunList list;
  constexpr int kDepth = 3;  // runs/NAME/0001, and sweeps/NAME/001/0001
  RunSearch search(list, name);
  if (!search.add(dir, dir.lexically_normal().string())) search.search(dir, "", kDepth);
  return list;
}

bool is_higher_better(const std::string& metric) {
  constexpr std::array kLower{"loss", "error", "mae", "mse", "rmse", "perplexity", "distance"};
  return std::ranges::none_of(kLower,
                              [&](const char* word) { return metric.find(word) != std::string::npos; });
}

void sort_runs(std::vector<ListedRun>& runs, const std::string& order, bool higher_is_better) {
  constexpr double kLowest = -std::numeric_limits<double>::infinity();
  const auto best = [&](const ListedRun& run) {
    const auto& value = run.record.best_value;
    return value && *value == *value ? (higher_is_better ? *value : -*value) : kLowest;
  };
  const auto sort_by = [&](auto key) {
    std::ranges::stable_sort(runs, [&](const auto& a, const auto& b) { return key(a) < key(b); });
  };
  sort_by([](const ListedRun& run) { return run.name; });
  if (order == "time") sort_by([](const ListedRun& run) { return run.record.started; });
  if (order == "status") sort_by([](const ListedRun& run) { return run.record.status; });
  if (order == "steps") sort_by([](const ListedRun& run) { return run.record.steps; });
  if (order == "seconds") sort_by([](const ListedRun& run) { return run.record.seconds; });
  if (order == "best")
    sort_by([&](const ListedRun& run) { return std::pair(run.record.best_value.has_value(), best(run)); });
}

std::string table_of_runs(const RunList& list, std::size_t width) {
  std::vector<TextColumn> columns = fixed_columns();
  Rows rows;
  for (const ListedRun& run : list.runs) rows.push_back(fixed_cells(run));
  std::size_t used = 0;
  for (std::size_t i = 0; i < columns.size(); ++i)
    used += column_width(columns[i], rows, i) + (i > 0 ? kColumnGap : 0);
  const auto keys = list.configs.keys();
  std::size_t num_hidden = 0;
  for (const std::string& key : keys) {
    Rows cells;
    for (const ListedRun& run : list.runs)
      cells.push_back({shortened(shown_value(list.configs.value(run.config, key)), kMaxValueWidth)});
    const TextColumn column{.title = short_key(key, keys)};
    const std::size_t more = kColumnGap + column_width(column, cells, 0);
    if (used + more > width) {
      ++num_hidden;
      continue;
    }
    used += more;
    columns.push_back(column);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].push_back(cells[i][0]);
  }
  return (rows.empty() ? "" : table_text(columns, rows)) + counts_text(list, num_hidden);
}

std::string json_of_runs(const RunList& list) {
  const auto keys = list.configs.keys();
  std::string json = "{\"runs\": [";
  for (std::size_t i = 0; i < list.runs.size(); ++i)
    json += (i == 0 ? "\n  " : ",\n  ") + json_of_run(list.runs[i], list, keys);
  return json + (list.runs.empty() ? "" : "\n") + "], \"skipped\": " + std::to_string(list.num_skipped) +
         "}\n";
}

}  // namespace kindling
