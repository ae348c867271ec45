#include "cli/config/predicted_column.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/joined.h"
#include "cli/config/command_line.h"
#include "data/sources/table_rows.h"
#include "formats/tables/wrong_values.h"
#include "kindling/base/error.h"
#include "kindling/base/suggest.h"
#include "kindling/base/text.h"
#include "kindling/formats/table.h"

namespace kindling {
namespace {

constexpr std::size_t kFewValues = 20;

bool is_listed(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

TableOptions reading(const TableDataOptions& options) {
  TableOptions read = layout_of(options);
  read.skips_broken = options.on_broken == "skip";
  read.numbers = options.numbers;
  read.categories = options.categories;
  return read;
}

Table read_whole(const TableDataOptions& options) { return read_table(options.file, reading(options)); }

Table whole_table(const TableDataOptions& options) {
  return read_table_or_list_errors(options.file, reading(options));
}

// The number of values that differ, without missing ones.
std::size_t num_values(const TableColumn& column) {
  if (column.kind == ColumnKind::category) return column.categories.size();
  std::set<double> numbers;
  for (const double number : column.numbers)
    if (!std::isnan(number)) numbers.insert(number);
  return numbers.size();
}

// Row numbers, names, and sentences are not what a model predicts.
bool identifies_rows(const TableColumn& column) {
  if (column.kind == ColumnKind::category)
    return column.categories.size() >= kFewValues && 2 * column.categories.size() > column.codes.size();
  if (column.numbers.size() < kFewValues) return false;
  for (std::size_t i = 1; i < column.numbers.size(); ++i)
    if (column.numbers[i] != column.numbers[i - 1] + 1) return false;
  return true;
}

// Returns the column to predict, and why.
std::pair<const TableColumn*, std::string> guess(const Table& table, const TableDataOptions& options) {
  std::vector<const TableColumn*> others;
  for (const TableColumn& column : table.columns) {
    const bool has_use = column.name == table.row_name || column.name == options.id ||
                         column.name == options.weights || column.name == options.group ||
                         column.name == options.time || is_listed(options.dates, column.name) ||
                         is_listed(options.exclude, column.name) || is_listed(options.features, column.name);
    if (!has_use) others.push_back(&column);
  }
  for (const char* const usual : {"target", "label", "class", "y"}) {
    const auto is_usual = [&](const TableColumn* column) { return lower_case(column->name) == usual; };
    if (const auto found = std::ranges::find_if(others, is_usual); found != others.end())
      return {*found, "its name"};
  }
  for (std::size_t i = others.size(); i-- > 0;)
    if (num_values(*others[i]) > 1 && !identifies_rows(*others[i]))
      return {others[i], i + 1 == others.size()
                             ? "it is the last column"
                             : "it is the last column that varies and does not identify rows"};
  throw DataError({.place = options.file.string(),
                   .found = "no column varies that does not identify rows",
                   .wanted = "a column to predict",
                   .remedy = "name it with --target"});
}

PredictedColumn described(const TableColumn& column, const TableDataOptions& options) {
  const auto with = [&](bool is_label, const char* reason) {
    return PredictedColumn{.name = column.name, .is_label = is_label, .reason = reason};
  };
  if (is_listed(options.numbers, column.name)) return with(false, "data.numbers lists it");
  if (is_listed(options.categories, column.name)) return with(true, "data.categories lists it");
  if (column.kind == ColumnKind::category) return with(true, "its values are texts, thus classes");
  if (num_values(column) == 2) return with(true, "it has two values, thus classes");
  return with(false, "its values are numbers");
}

}  // namespace

PredictedColumn predicted_column(const TableDataOptions& options, const std::string& name) {
  std::optional<Table> table;
  try {
    table = whole_table(options);
  } catch (const DataError&) {
    if (name.empty()) throw;
    return {.name = name};
  }
  if (!name.empty()) {
    if (const TableColumn* const column = table->find(name)) return described(*column, options);
    throw ConfigError(missing_column(*table, name, "--target", options.file.string()));
  }
  const auto [column, reason] = guess(*table, options);
  PredictedColumn predicted = described(*column, options);
  predicted.reason = reason + "; " + predicted.reason;
  return predicted;
}

std::optional<ChosenKey> guess_reading(const TableDataOptions& options) {
  std::string found;
  try {
    read_whole(options);
    return std::nullopt;
  } catch (const DataError& error) {
    found = one_line(error.parts().found);
  }
  // The key with which most columns have numbers. Thousands come before the decimal comma, which reads 2,500
  // as well.
  std::optional<ChosenKey> best;
  std::size_t most = 0;
  const auto try_key = [&](const char* key, const char* value, const auto& set) {
    TableDataOptions other = options;
    set(other);
    try {
      const Table table = read_whole(other);
      const auto count =
          static_cast<std::size_t>(std::ranges::count(table.columns, ColumnKind::number, &TableColumn::kind));
      if (count <= most) return;
      most = count;
      best = {key, value, found};
    } catch (const DataError&) {  // another key may do
    }
  };
  if (found == "the first row contains numbers only") {
    try_key("data.header", "false", [](auto& other) { other.header = false; });
    return best;
  }
  found = "a column of numbers has " + found;
  try_key("data.na_values", "\"auto\"", [](auto& other) { other.na_values = {"auto"}; });
  try_key("data.thousands", "\",\"", [](auto& other) { other.thousands = ","; });
  try_key("data.decimal", "\",\"", [](auto& other) { other.decimal = ","; });
  return best;
}

void refuse_without_target(const TableDataOptions& options, const std::string& command,
                           const std::string& table) {
  std::vector<std::string> names;
  for (const TableColumn& column : whole_table(options).columns) names.push_back(column.name);
  throw ConfigError({.place = "kindling " + command + " " + shell_word(table),
                     .found = "the column to predict is missing",
                     .wanted = "--target NAME" +
                               (names.size() <= 20 ? ", with one of " + list_names(names) : std::string()),
                     .remedy = "`kindling config " + shell_word(table) + "` writes a config with a guess"});
}

}  // namespace kindling
