#include "data/sources/table_windows.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "base/joined.h"
#include "data/loading/sample_ranges.h"
#include "data/sources/table_labels.h"
#include "data/sources/table_places.h"
#include "data/sources/table_rows.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

std::size_t at_index(std::int64_t number) { return static_cast<std::size_t>(number); }

const TableColumn& window_column(const Table& table, const std::string& name, const std::string& place) {
  if (const TableColumn* const column = table.find(name)) return *column;
  throw DataError({.place = place,
                   .found = "the column '" + one_line(name) + "' is missing",
                   .wanted = "the series and times that windows of rows need"});
}

// Returns the number of each row's series, counted from 0 in the order of their first rows.
std::vector<std::int64_t> series_of(const Table& table, const TableSchema& schema, const std::string& place) {
  if (schema.series.empty()) return std::vector<std::int64_t>(table.num_rows);
  const TableColumn& column = window_column(table, schema.series, place);
  const auto empty = std::ranges::find(column.categories, "");
  for (std::size_t row = 0; row < table.num_rows; ++row)
    if (column.is_missing(row) ||
        (empty != column.categories.end() && column.codes[row] == empty - column.categories.begin()))
      throw DataError({.place = row_place(table, row, column.name, place),
                       .found = "the series is missing",
                       .wanted = "a value in every row"});
  std::vector<std::int64_t> series = groups_of(table, column, place);
  std::vector<std::int64_t> numbers(series.empty() ? 0 : at_index(*std::ranges::max_element(series)) + 1, -1);
  std::int64_t count = 0;
  for (std::int64_t& one : series) {
    std::int64_t& number = numbers[at_index(one)];
    if (number < 0) number = count++;
    one = number;
  }
  return series;
}

void warn_of_equal_times(const std::vector<std::int64_t>& order, const std::vector<std::int64_t>& series,
                         const std::vector<double>& times, const TableSchema& schema,
                         const std::string& place) {
  std::size_t num_equal = 0;
  for (std::size_t i = 1; i < order.size(); ++i) {
    const std::size_t row = at_index(order[i]), before = at_index(order[i - 1]);
    if (series[row] == series[before] && times[row] == times[before]) ++num_equal;
  }
  if (num_equal > 0)
    log_warning(place + ", column '" + one_line(schema.time) + "': " + counted(num_equal, "row") + " of " +
                std::to_string(order.size()) + " with the time of the row before in the same series; " +
                (schema.series.empty() ? "if the table has several series, set data.series"
                                       : "such rows keep the order of the file"));
}

std::vector<std::int64_t> sorted_rows(const Table& table, const std::vector<std::int64_t>& series,
                                      const TableSchema& schema, const TableDataOptions& options,
                                      const std::string& place) {
  std::vector<std::int64_t> order(table.num_rows);
  std::iota(order.begin(), order.end(), 0);
  std::vector<double> times;
  if (!schema.time.empty()) times = times_of(table, window_column(table, schema.time, place), options, place);
  std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) {
    if (series[at_index(a)] != series[at_index(b)]) return series[at_index(a)] < series[at_index(b)];
    return !times.empty() && times[at_index(a)] < times[at_index(b)];
  });
  if (!times.empty()) warn_of_equal_times(order, series, times, schema, place);
  return order;
}

// Throws DataError for the first row without one, if such rows are errors.
std::vector<bool> rows_with_values(const Table& table, const TableSchema& schema,
                                   const TableDataOptions& options, const std::string& place) {
  std::vector<std::string> names = schema.targets;
  if (!schema.label.empty()) names.push_back(schema.label);
  std::vector<bool> has_value(table.num_rows, true);
  for (const std::string& name : names) {
    const TableColumn* const column = table.find(name);
    for (std::size_t row = 0; column != nullptr && row < table.num_rows; ++row) {
      if (!column->is_missing(row)) continue;
      has_value[row] = false;
      if (options.on_missing_target == "error")
        throw DataError(missing_label(row_place(table, row, name, place)));
    }
  }
  return has_value;
}

[[noreturn]] void refuse_split(const TableDataOptions& options, const char* side) {
  throw ConfigError({.place = options.folds ? "data.folds" : "data.val_fraction",
                     .found = std::string("no window is left for ") + side,
                     .wanted = "at least one",
                     .remedy = options.folds ? "use fewer folds" : "validate another fraction"});
}

// The windows of each series, in order.
std::vector<std::vector<std::int64_t>> windows_by_series(const TableWindows& windows) {
  std::vector<std::int64_t> by_position(windows.begins.size());
  std::iota(by_position.begin(), by_position.end(), 0);
  std::ranges::sort(by_position, {}, [&](std::int64_t window) { return windows.begins[at_index(window)]; });
  std::vector<std::vector<std::int64_t>> by_series;
  for (const std::int64_t window : by_position) {
    const std::size_t series = at_index(windows.series[at_index(window)]);
    if (series >= by_series.size()) by_series.resize(series + 1);
    by_series[series].push_back(window);
  }
  return by_series;
}

struct Range {
  std::size_t begin = 0, end = 0;
};

// Returns which of a series' windows are validated. `num_before`: windows of the series before it, so that
// rounding evens out over many short series.
Range validated_range(std::size_t num_before, std::size_t count, const TableDataOptions& options) {
  if (options.folds) {
    const auto folds = at_index(*options.folds), fold = at_index(options.fold), begun = num_before % folds;
    return {(count * fold + begun) / folds, (count * (fold + 1) + begun) / folds};
  }
  const auto rounded = [&](std::size_t windows) {
    return static_cast<std::size_t>(std::floor(static_cast<double>(windows) * *options.val_fraction + 0.5));
  };
  return {count - (rounded(num_before + count) - rounded(num_before)), count};
}

struct FoundWindows {
  std::vector<std::int64_t> begins{};  // positions in the order of the rows
  std::size_t num_without_value = 0, num_series = 0, num_short_series = 0;
};

// `to_target`: from the first row of a window to the one that it predicts, or to its last one.
FoundWindows find_windows(const std::vector<std::int64_t>& order, const std::vector<std::int64_t>& series,
                          const std::vector<bool>& has_value, std::int64_t to_target) {
  FoundWindows found;
  std::vector<bool> has_window;  // of series, which are numbered
  for (const std::int64_t number : series)
    if (at_index(number) >= has_window.size()) has_window.resize(at_index(number) + 1);
  for (std::size_t begin = 0; begin + at_index(to_target) < order.size(); ++begin) {
    const std::size_t target = at_index(order[begin + at_index(to_target)]);
    const std::int64_t number = series[at_index(order[begin])];
    if (series[target] != number) continue;
    has_window[at_index(number)] = true;
    if (has_value[target])
      found.begins.push_back(static_cast<std::int64_t>(begin));
    else
      ++found.num_without_value;
  }
  found.num_series = has_window.size();
  found.num_short_series = static_cast<std::size_t>(std::ranges::count(has_window, false));
  return found;
}

// Throws DataError if no window is left. `needed`: the rows that a series needs.
void warn_of_omitted(const FoundWindows& found, const std::string& needed, bool trains,
                     const std::string& place) {
  if (found.begins.empty()) {
    const bool lacks_values = found.num_without_value > 0;
    throw DataError(
        {.place = place,
         .found =
             lacks_values ? "the value to predict is missing for each window" : "no series has " + needed,
         .wanted = std::string("at least one window") + (trains ? " and the row that it predicts" : ""),
         .remedy = lacks_values ? ""
                   : trains     ? "set a smaller data.window or data.horizon"
                                : "add rows: the model takes windows of this length only"});
  }
  if (found.num_short_series > 0)
    log_warning(place + ": " + std::to_string(found.num_short_series) + " of " +
                std::to_string(found.num_series) + " series have fewer than " + needed +
                ", and so no window");
  if (found.num_without_value > 0)
    log_warning("data.on_missing_target: omitted " + std::to_string(found.num_without_value) + " of " +
                counted(found.begins.size() + found.num_without_value, "window") + " of " + place +
                " without a value to predict");
}

SplitIndices split_in_order(const TableWindows& windows, const TableDataOptions& options) {
  SplitIndices indices;
  std::size_t num_before = 0;
  for (const std::vector<std::int64_t>& series : windows_by_series(windows)) {
    const Range val = validated_range(num_before, series.size(), options);
    for (std::size_t i = 0; i < series.size(); ++i)
      (val.begin <= i && i < val.end ? indices.val : indices.train).push_back(series[i]);
    num_before += series.size();
  }
  if (indices.val.empty() || indices.train.empty())
    refuse_split(options, indices.val.empty() ? "validation" : "training");
  std::ranges::sort(indices.train);
  std::ranges::sort(indices.val);
  return indices;
}

void remove_leaks(const TableWindows& windows, const std::vector<std::int64_t>& groups, SplitIndices& indices,
                  const TableDataOptions& options, const std::string& place) {
  const auto target_of = [&](std::int64_t window) { return at_index(windows.targets[at_index(window)]); };
  std::vector<bool> is_validated(windows.order.size());
  std::unordered_set<std::int64_t> validated_groups;
  for (const std::int64_t window : indices.val) {
    is_validated[target_of(window)] = true;
    if (!groups.empty()) validated_groups.insert(groups[target_of(window)]);
  }
  for (std::size_t row = 0; row < groups.size(); ++row)
    if (validated_groups.contains(groups[row])) is_validated[row] = true;
  std::vector<std::int64_t> num_validated{0};  // before each position
  for (const std::int64_t row : windows.order)
    num_validated.push_back(num_validated.back() + (is_validated[at_index(row)] ? 1 : 0));
  const std::size_t num_before = indices.train.size();
  std::erase_if(indices.train, [&](std::int64_t window) {
    const std::int64_t begin = windows.begins[at_index(window)];
    return num_validated[at_index(begin + windows.length)] > num_validated[at_index(begin)];
  });
  const std::size_t num_removed = num_before - indices.train.size();
  if (num_removed == 0) return;
  const std::string found = std::to_string(num_removed) + " of " + counted(num_before, "training window") +
                            " have rows of the validation, and are omitted";
  const bool is_chosen = options.split != "auto" || options.stratify || !options.group.empty();
  const std::string remedy =
      is_chosen
          ? "without data.split, data.stratify and data.group, the last windows of each series are validated"
          : "";
  if (indices.train.empty())
    throw ConfigError({.place = "data.window",
                       .found = found,
                       .wanted = "at least one window that is left for training",
                       .remedy = remedy});
  log_warning(place + ": " + found + (2 * num_removed > num_before && is_chosen ? "; " + remedy : ""));
}

// Returns the values of the samples from those of the rows.
template <class Value>
std::vector<Value> of_samples(std::vector<Value> of_rows, const TableWindows* windows) {
  if (windows == nullptr || of_rows.empty()) return of_rows;
  std::vector<Value> values;
  for (const std::int64_t row : windows->targets) values.push_back(of_rows[static_cast<std::size_t>(row)]);
  return values;
}

SplitIndices windows_in_ranges(const SplitIndices& rows, const TableWindows& windows) {
  enum class Side : std::uint8_t { none, train, val };
  std::vector<Side> sides(windows.order.size(), Side::none);
  for (const std::int64_t row : rows.train) sides[static_cast<std::size_t>(row)] = Side::train;
  for (const std::int64_t row : rows.val) sides[static_cast<std::size_t>(row)] = Side::val;
  SplitIndices indices;
  for (std::size_t i = 0; i < windows.targets.size(); ++i) {
    const Side side = sides[static_cast<std::size_t>(windows.targets[i])];
    if (side != Side::none)
      (side == Side::val ? indices.val : indices.train).push_back(static_cast<std::int64_t>(i));
  }
  for (const bool is_val : {false, true})
    if ((is_val ? indices.val : indices.train).empty() && !(is_val ? rows.val : rows.train).empty())
      throw ConfigError({.place = is_val ? "data.val" : "data.train",
                         .found = "no window predicts a row of the range",
                         .wanted = "a range with rows that are predicted"});
  return indices;
}

std::vector<std::int64_t> classes_of_samples(const Table& table, const TableSchema& schema,
                                             const TableWindows* windows, const SplitOptions& split,
                                             const std::string& place) {
  const TableSchema only_label{
      .label = schema.label, .classes = schema.classes, .label_separator = schema.label_separator};
  const at::Tensor classes =
      labels_of(table, only_label, windows == nullptr ? nullptr : &windows->targets, place);
  if (!schema.label_separator.empty()) return codes_of_sets(classes, split);
  const auto* const begin = classes.const_data_ptr<std::int64_t>();
  return {begin, begin + classes.numel()};
}

// `groups`: of the rows.
SplitIndices split(const Table& table, const TableSchema& schema, const TableDataOptions& options,
                   const std::vector<std::int64_t>& groups, const TableWindows* windows,
                   const std::string& place) {
  const bool is_in_order =
      windows != nullptr && options.split == "auto" && groups.empty() && !options.stratify;
  if (options.split == "time" || (is_in_order && !options.time.empty() && options.val_fraction)) {
    const TableColumn& column = require_column(table, options.time, "data.time", place);
    const std::vector<double> times = of_samples(times_of(table, column, options, place), windows);
    if (windows != nullptr && !times.empty() && std::ranges::count(times, times[0]) == std::ssize(times))
      throw ConfigError({.place = "data.time",
                         .found = "all windows predict rows of the same time",
                         .wanted = "at least two different times",
                         .remedy = "set a smaller data.window, or split whole series with data.group"});
    return split_by_time(times, *options.val_fraction, "data");
  }
  if (is_in_order) return split_in_order(*windows, options);
  SplitOptions by{.val_fraction = options.val_fraction,
                  .folds = options.folds,
                  .fold = options.fold,
                  .seed = options.seed,
                  .groups = of_samples(groups, windows),
                  .place = "data"};
  if (options.stratify) by.classes = classes_of_samples(table, schema, windows, by, place);
  const auto num_samples =
      static_cast<std::int64_t>(windows == nullptr ? table.num_rows : windows->targets.size());
  return split_indices(num_samples, by);
}

}  // namespace

std::vector<std::int64_t> TableWindows::rows_of(const std::vector<std::int64_t>& windows) const {
  std::vector<bool> is_used(order.size());
  for (const std::int64_t window : windows)
    for (std::int64_t i = 0; i < length; ++i)
      is_used[at_index(order[at_index(begins[at_index(window)] + i)])] = true;
  std::vector<std::int64_t> rows;
  for (std::size_t row = 0; row < is_used.size(); ++row)
    if (is_used[row]) rows.push_back(static_cast<std::int64_t>(row));
  return rows;
}

TableWindows windows_of(const Table& table, const TableSchema& schema, const TableDataOptions& options,
                        WindowUse use, const std::string& place) {
  const bool trains = use == WindowUse::trains;
  const std::vector<std::int64_t> series = series_of(table, schema, place);
  TableWindows windows{.length = schema.window, .order = sorted_rows(table, series, schema, options, place)};
  const std::vector<bool> has_value =
      trains ? rows_with_values(table, schema, options, place) : std::vector<bool>(table.num_rows, true);
  const std::int64_t to_target = schema.window - 1 + (trains ? schema.horizon : 0);
  FoundWindows found = find_windows(windows.order, series, has_value, to_target);
  warn_of_omitted(found, counted(to_target + 1, "row"), trains, place);
  const auto row_at = [&](std::int64_t position) { return windows.order[at_index(position)]; };
  std::ranges::sort(found.begins, {}, [&](std::int64_t begin) { return row_at(begin + schema.window - 1); });
  for (const std::int64_t begin : found.begins) {
    windows.begins.push_back(begin);
    windows.last_rows.push_back(row_at(begin + schema.window - 1));
    windows.series.push_back(series[at_index(row_at(begin))]);
    if (trains) windows.targets.push_back(row_at(begin + to_target));
  }
  return windows;
}

SplitIndices split_samples(const Table& table, const TableSchema& schema, const TableDataOptions& options,
                           const DataOptions& shared, const TableWindows* windows, const std::string& place) {
  SplitIndices indices;
  std::vector<std::int64_t> groups;
  if (!options.val_fraction && !options.folds) {
    indices = samples_in_ranges(static_cast<std::int64_t>(table.num_rows), shared);
    if (windows != nullptr) indices = windows_in_ranges(indices, *windows);
  } else {
    if (!options.group.empty())
      groups = groups_of(table, require_column(table, options.group, "data.group", place), place);
    indices = split(table, schema, options, groups, windows, place);
  }
  if (windows != nullptr) remove_leaks(*windows, groups, indices, options, place);
  return indices;
}

}  // namespace kindling
