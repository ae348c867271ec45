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
#include "formats/tables/table_units.h"
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

std::optional<Table> read_if_possible(const TableDataOptions& options) try {
  return read_whole(options);
} catch (const DataError&) {
  return std::nullopt;
}

// True if the table can be read, with all columns of numbers of `known`.
bool is_readable(const TableDataOptions& options, const Table& known) {
  const std::optional<Table> table = read_if_possible(options);
  return table && std::ranges::all_of(known.columns, [&](const TableColumn& column) {
           if (column.kind != ColumnKind::number) return true;
           const TableColumn* const now = table->find(column.name);
           return now != nullptr && now->kind == ColumnKind::number;
         });
}

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
  if (column.kind == ColumnKind::category) {
    if (!common_unit(column.categories, layout_of(options)))
      return with(true, "its values are texts, thus classes");
    if (options.units) return with(false, "its values are numbers with a unit");
    return with(true, "its values are texts, thus classes; with data.units = true they are numbers");
  }
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

std::vector<ChosenKey> guess_reading(const TableDataOptions& options) {
  std::string found;
  try {
    read_whole(options);
    return {};
  } catch (const DataError& error) {
    found = one_line(error.parts().found);
  }
  const auto with = [&](const auto& set) {
    TableDataOptions other = options;
    set(other);
    return other;
  };
  if (found == "the first row contains numbers only") {
    if (!is_readable(with([](auto& other) { other.header = false; }), {})) return {};
    return {{"data.header", "false", found}};
  }
  TableDataOptions lenient = options;  // with it, columns whose values are mostly numbers are columns of them
  lenient.on_broken = "skip";
  const std::optional<Table> table = read_if_possible(lenient);
  if (!table) return {};
  const auto can_read = [&](const auto& set) { return is_readable(with(set), *table); };
  found = "a column of numbers has " + found;
  if (can_read([](auto& other) { other.na_values = {"auto"}; }))
    return {{"data.na_values", "\"auto\"", found}};
  const bool has_thousands = can_read([](auto&other) { other.thousands = ","; }),
             has_decimals = can_read([](auto&other) { other.decimal = ","; });
  // Both read 2,500. Programs write semicolons where the comma is the decimal mark.
  const auto prefers_decimals = [&] {
    if (options.delimiter != "auto") return options.delimiter == ";";
    lenient.delimiter = ";";
    const std::optional<Table> other = read_if_possible(lenient);
    return other &&
           std::ranges::equal(other->columns, table->columns, {}, &TableColumn::name, &TableColumn::name);
  };
  if (has_decimals && (!has_thousands || prefers_decimals()))
    return {{"data.decimal", "\",\"",
             found + (has_thousands ? "; if commas separate thousands, set thousands = \",\" instead" : "")}};
  if (has_thousands)
    return {
        {"data.thousands", "\",\"",
         found + (has_decimals ? "; if the comma is the decimal mark, set decimal = \",\" instead" : "")}};
  if (can_read([](auto& other) { other.decimal = ",", other.thousands = "."; }))
    return {{"data.decimal", "\",\"", found}, {"data.thousands", "\".\"", found}};
  return {};
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
