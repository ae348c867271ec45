#include "data/sources/table_split.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "data/loading/sample_ranges.h"
#include "data/sources/table_labels.h"
#include "data/sources/table_rows.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

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
                                             const TableWindows* windows, const std::string& place) {
  const TableSchema only_label{.label = schema.label, .classes = schema.classes};
  const at::Tensor classes =
      labels_of(table, only_label, windows == nullptr ? nullptr : &windows->targets, place);
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
    return split_by_time(of_samples(times_of(table, column, options, place), windows), *options.val_fraction,
                         "data");
  }
  if (is_in_order) return split_in_order(*windows, options);
  SplitOptions by{.val_fraction = options.val_fraction,
                  .folds = options.folds,
                  .fold = options.fold,
                  .seed = options.seed,
                  .groups = of_samples(groups, windows),
                  .place = "data"};
  if (options.stratify) by.classes = classes_of_samples(table, schema, windows, place);
  const auto num_samples =
      static_cast<std::int64_t>(windows == nullptr ? table.num_rows : windows->targets.size());
  return split_indices(num_samples, by);
}

}  // namespace

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
  if (windows != nullptr) remove_leaks(*windows, groups, indices, place);
  return indices;
}

}  // namespace kindling
