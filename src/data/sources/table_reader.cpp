#include "data/sources/table_reader.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/config_errors.h"
#include "base/joined.h"
#include "data/sources/data_checks.h"
#include "data/sources/date_columns.h"
#include "data/sources/table_labels.h"
#include "data/sources/table_places.h"
#include "data/sources/table_rows.h"
#include "data/sources/unified_values.h"
#include "formats/tables/chosen_columns.h"
#include "formats/tables/table_units.h"
#include "formats/tables/wrong_values.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void add_unless_listed(std::vector<std::string>& names, const std::string& name,
                       const TableOptions& options) {
  if (!name.empty() && !contains(options.numbers, name) && !contains(options.categories, name) &&
      !contains(options.known_categories, name))
    names.push_back(name);
}

// Numbers with a unit are texts to the reader.
void add_numbers(const std::string& name, const TableSchema& schema, TableOptions& read) {
  add_unless_listed(schema.units.contains(name) ? read.known_categories : read.numbers, name, read);
}

void warn_of_names(const Table& table, const std::string& place) {
  const std::size_t numbers = table.num_number_names, all = table.columns.size() + table.num_unnamed;
  if (numbers > 0 && 2 * numbers >= all)
    log_warning(place + ", header: " + std::to_string(numbers) + " of " + counted(all, "name") +
                " are numbers, as if this were a row of values: set data.header = false if it is");
}

// Replaces the columns by their numbers.
void remove_units(const std::map<std::string, NumberUnit>& units, const TableOptions& layout,
                  const std::string& place, Table& table, WrongRows& wrong) {
  for (TableColumn& column : table.columns)
    if (const auto unit = units.find(column.name); unit != units.end())
      remove_unit(unit->second, layout, table, wrong, place, column);
}

}  // namespace

// Ids, labels and groups are texts in every file: "01" is not "1".
TableOptions TableReader::reading(const TableOptions& columns, const std::string& id,
                                  const std::string& label) const {
  TableOptions read = layout_of(options_);
  read.numbers = columns.numbers;
  read.categories = columns.categories;
  read.known_categories = columns.known_categories;
  read.skips_others = columns.skips_others;
  read.skips_broken = columns.skips_broken;
  add_unless_listed(read.categories, id, read);
  add_unless_listed(read.known_categories, label, read);
  for (const std::string& name : {options_.group, options_.series}) {
    if (contains(options_.numbers, name))
      add_unless_listed(read.numbers, name, read);
    else if (!contains(options_.features, name))
      add_unless_listed(read.categories, name, read);
  }
  // The reader takes columns of numbers as such: features, targets and weights.
  if (!contains(options_.features, options_.time) && !contains(options_.target, options_.time) &&
      options_.time != options_.weights)
    add_unless_listed(read.known_categories, options_.time, read);
  for (const std::string& name : columns.skips_others ? std::vector<std::string>() : options_.dates)
    add_unless_listed(read.known_categories, name, read);
  return read;
}

// Throws the errors in values of the files that are still to be read, too.
Table TableReader::read(const std::filesystem::path& file, const TableOptions& read) const {
  if (const auto kept = tables_.find(file); kept != tables_.end())
    return with_chosen_columns(kept->second, read, file.string());
  try {
    return read_table_or_list_errors(file, read);
  } catch (const DataError& error) {
    std::vector<std::filesystem::path> files{options_.file};
    files.insert(files.end(), options_.val_files.begin(), options_.val_files.end());
    if (options_.test_file) files.push_back(*options_.test_file);
    const auto found = std::ranges::find(files, file);
    if (found == files.end()) throw;
    std::string errors = error.what();
    for (auto other = found + 1; other != files.end(); ++other)
      for (const ErrorParts& parts : wrong_values_in(*other, read))
        errors.append("\n").append(DataError(parts).what());
    if (errors == error.what()) throw;
    throw DataError({.found = errors});
  }
}

// Otherwise, a row without any of several labels has 0 for each class.
void TableReader::refuse_row_without_label(const Table& table, const std::string& place) const {
  const TableColumn* const column = table.find(options_.label);
  for (std::size_t row = 0; column != nullptr && row < table.num_rows; ++row)
    if (column->is_missing(row)) throw DataError(missing_label(row_place(table, row, options_.label, place)));
}

// Removes rows without labels, and records which rows the table lacks.
Table TableReader::without_broken(Table table, const std::filesystem::path& file) {
  // A window needs consecutive rows, so that windows are omitted instead.
  if (!options_.window && (skips() || options_.on_missing_target == "skip")) {
    std::vector<std::string> labels = options_.target;
    if (!options_.label.empty()) labels.push_back(options_.label);
    if (!may_lack_labels()) skip_rows_without(labels, table, file.string());
  } else if (!options_.label_separator.empty()) {
    refuse_row_without_label(table, file.string());
  }
  if (table.skipped.empty()) return table;
  std::vector<std::string> errors;
  const std::size_t first = table.skipped.front().row;
  for (BrokenRow& row : table.skipped) errors.push_back(std::move(row.error));
  if (table.num_rows == 0)
    throw DataError({.place = file.string(),
                     .found = "no row can be used; the first error: " + errors[0],
                     .wanted = "at least one row that can be read"});
  if (skips())
    warn_of_skipped("data.on_broken", errors, errors.size() + table.num_rows, "rows");
  else
    log_warning("data.on_missing_target: omitted " + std::to_string(errors.size()) + " of " +
                counted(errors.size() + table.num_rows, "row") + " of " + file.filename().string() +
                " without a value to predict, the first: row " + std::to_string(first));
  skipped_.insert(skipped_.end(), errors.begin(), errors.end());
  return table;
}

// Columns that the config declares keep their texts.
bool TableReader::is_declared(const std::string& name) const {
  return contains(options_.categories, name) || contains(options_.numbers, name);
}

Table TableReader::read_again(const std::filesystem::path& file, const TableSchema& schema,
                              TableColumns columns) {
  const std::string place = file.string();
  const bool with_labels = columns != TableColumns::of_inputs;
  TableOptions with_columns = schema.table_options();
  with_columns.skips_broken = with_labels && skips();
  if (columns == TableColumns::of_training) add_numbers(options_.weights, schema, with_columns);
  if (with_labels)
    for (const std::string& target : schema.targets) add_numbers(target, schema, with_columns);
  Table table = read(file, reading(with_columns, schema.id, with_labels ? schema.label : ""));
  for (TableColumn& column : table.columns) unify_by(schema, column);
  WrongRows wrong;
  remove_units(schema.units, layout_in(file, options_), place, table, wrong);
  for (const std::string& name : schema.dates) {
    if (table.find(name) == nullptr)
      throw DataError({.place = place,
                       .found = "the column '" + one_line(name) + "' is missing",
                       .wanted = "the dates that the model was trained on"});
    add_date_columns(name, /*only_varying=*/false, table, wrong, place);
  }
  if (columns == TableColumns::of_training && skips()) find_wrong_times(table, place, wrong);
  wrong.skip_or_throw(with_labels && skips(), table);
  return with_labels ? without_broken(std::move(table), file) : table;
}

// The names of the file's columns are those of the config.
Table TableReader::read_first() {
  const std::string place = options_.file.string();
  try {
    Table table = read(
        options_.file,
        reading({.numbers = options_.numbers, .categories = options_.categories, .skips_broken = skips()},
                options_.id, options_.label));
    warn_of_names(table, place);
    take_row_name(table);
    if (options_.units) find_units(table);
    WrongRows wrong;
    remove_units(units_, layout_in(options_.file, options_), place, table, wrong);
    for (const std::string& name : options_.dates)
      add_date_columns(name, /*only_varying=*/true, table, wrong, place);
    require_columns(table);
    if (skips()) find_wrong_times(table, place, wrong);
    wrong.skip_or_throw(skips(), table);
    for (TableColumn& column : table.columns)
      if (column.kind == ColumnKind::category && !is_declared(column.name)) unify_values(column);
    return without_broken(std::move(table), options_.file);
  } catch (const DataError& error) {
    if (error.parts().found.starts_with("no column has the name ")) require_columns(names_only());
    throw;
  }
}

// Otherwise, the split reports the first of them.
void TableReader::find_wrong_times(const Table& table, const std::string& place, WrongRows& wrong) const {
  const TableColumn* const column = options_.time.empty() ? nullptr : table.find(options_.time);
  if (column != nullptr) times_of(table, *column, options_, place, &wrong);
}

// Read without the columns that the config names, any of which may be absent.
Table TableReader::names_only() const {
  TableOptions read = layout_of(options_);
  read.skips_broken = skips();
  return this->read(options_.file, read);
}

void TableReader::warn_of_texts(const std::string& name, const std::vector<std::string>& without_unit) const {
  if (without_unit.empty()) return;
  log_warning(options_.file.string() + ", column '" + one_line(name) +
              "': data.units cannot read it as numbers because of \"" + one_line(without_unit.front()) +
              "\"" +
              (without_unit.size() == 1 ? "" : " and " + counted(without_unit.size() - 1, "other text")) +
              "; if this marks a missing value, list it in data.na_values");
}

void TableReader::find_units(const Table& table) {
  const TableOptions layout = layout_in(options_.file, options_);
  std::string found;
  for (const TableColumn& column : table.columns) {
    const std::string& name = column.name;
    const bool has_texts = column.kind == ColumnKind::number || is_declared(name) || name == options_.label ||
                           name == options_.id || name == options_.group || name == options_.series ||
                           name == options_.time || name == table.row_name ||
                           contains(options_.dates, name) || contains(options_.exclude, name);
    if (has_texts) continue;
    const auto unit = common_unit(column.categories, layout);
    if (!unit) {
      warn_of_texts(name, texts_without_unit(column.categories, layout));
      continue;
    }
    units_[name] = *unit;
    found += (found.empty() ? "" : ", ") + one_line(name) + " (" + one_line(unit_text(*unit)) + ")";
  }
  if (!found.empty()) log_info("data.units: read as numbers: " + found);
}

void TableReader::add_units(TableSchema& schema) const {
  const auto is_read = [&](const std::string& name) {
    return name == options_.weights || contains(schema.targets, name) ||
           std::ranges::any_of(schema.features, [&](const auto& feature) { return feature.name == name; });
  };
  for (const auto& [name, unit] : units_)
    if (is_read(name)) schema.units[name] = unit;
}

// A column without a name identifies rows if no other does.
void TableReader::take_row_name(const Table& table) {
  const std::string& name = table.row_name;
  const std::string place = options_.file.string();
  if (table.num_unnamed > 0)
    log_warning(place + ": " + counted(table.num_unnamed, "column") + " without a name " +
                (table.num_unnamed == 1 ? "is" : "are") + " omitted");
  if (name.empty() || contains(options_.features, name)) return;
  const TableColumn& column = *table.find(name);
  const bool is_id = options_.id.empty() && !column.categories.empty();
  if (is_id) options_.id = name;
  if (options_.id != name && !contains(options_.exclude, name)) options_.exclude.push_back(name);
  log_warning(place + ": the column without a name " +
              (is_id ? "identifies rows, as '" + name + "' in predictions" : "is omitted"));
}

// Throws ConfigErrors with every column that the config names and the file does not have.
void TableReader::require_columns(const Table& table) const {
  std::vector<ErrorParts> missing;
  const auto check = [&](const std::string& key, const std::vector<std::string>& names) {
    for (std::size_t i = 0; i < names.size(); ++i)
      if (!names[i].empty() && table.find(names[i]) == nullptr)
        missing.push_back(missing_column(table, names[i],
                                         names.size() == 1 ? key : key + "[" + std::to_string(i) + "]",
                                         options_.file.string()));
  };
  check("data.target", options_.target);
  check("data.label", {options_.label});
  check("data.features", options_.features);
  check("data.exclude", options_.exclude);
  for (const auto& [name, marks] : options_.na_values.by_name) check("data.na_values." + name, {name});
  check("data.numbers", options_.numbers);
  check("data.categories", options_.categories);
  check("data.weights", {options_.weights});
  check("data.id", {options_.id});
  check("data.group", {options_.group});
  check("data.series", {options_.series});
  check("data.time", {options_.time});
  check("data.dates", options_.dates);
  if (!missing.empty()) throw ConfigErrors(std::move(missing));
}

}  // namespace kindling
