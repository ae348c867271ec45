#include "data/sources/table_rows.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/joined.h"
#include "data/sources/date_columns.h"
#include "data/sources/table_labels.h"
#include "data/sources/table_places.h"
#include "data/sources/unified_values.h"
#include "formats/tables/iso_time.h"
#include "formats/tables/table_values.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "kindling/base/suggest.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

constexpr double kMissingValue = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kUnknown = -1;
constexpr std::size_t kMaxEncoded = 100'000;  // columns after one-hot encoding

// Returns Table::row_number() of each row.
std::vector<std::size_t> row_numbers(const Table& table) {
  std::vector<std::size_t> numbers;
  auto skipped = table.skipped.begin();
  for (std::size_t number = 1; numbers.size() < table.num_rows; ++number) {
    if (skipped != table.skipped.end() && skipped->row == number)
      ++skipped;
    else
      numbers.push_back(number);
  }
  return numbers;
}

// `dropped`: those that are not kept.
void remove_rows(const std::vector<bool>& is_kept, const std::vector<BrokenRow>& dropped, Table& table) {
  if (dropped.empty()) return;
  const auto keep = [&](auto& values) {
    std::size_t row = 0;
    std::erase_if(values, [&](const auto&) { return !is_kept[row++]; });
  };
  for (TableColumn& column : table.columns) {
    if (column.kind == ColumnKind::number)
      keep(column.numbers);
    else
      keep(column.codes);
  }
  table.num_rows -= dropped.size();
  table.skipped.insert(table.skipped.end(), dropped.begin(), dropped.end());
  std::ranges::sort(table.skipped, {}, &BrokenRow::row);
}

std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const TableColumn& column : table.columns) names.push_back(column.name);
  return names;
}

bool is_in(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// --- Codes ---

// The values that are not among the categories.
struct UnknownValues {
  std::size_t count = 0;
  std::vector<std::string> examples{};
};

// Returns the code of each category of a column in the schema's list, which is sorted.
std::vector<std::int64_t> known_codes(const std::vector<std::string>& texts,
                                      const std::vector<std::string>& categories) {
  std::vector<std::int64_t> codes;
  for (const std::string& text : texts) {
    const auto found = std::lower_bound(categories.begin(), categories.end(), text);
    const bool is_known = found != categories.end() && *found == text;
    codes.push_back(is_known ? found - categories.begin() : kUnknown);
  }
  return codes;
}

void warn_of(const UnknownValues& unknown, const std::string& place, const std::string& name) {
  if (unknown.count == 0) return;
  std::string examples;
  for (const std::string& text : unknown.examples)
    examples += (examples.empty() ? "'" : ", '") + shortened(one_line(text), 40) + "'";
  log_warning(column_place(place, name) + ": " + std::to_string(unknown.count) +
              (unknown.count == 1 ? " value is a category" : " values are categories") +
              " that the training rows do not have (such as " + examples +
              "); their columns of the encoding are all 0");
}

// Returns the codes of a column's rows; NaN: missing.
std::vector<double> codes_of(const TableColumn& column, const TableFeature& feature,
                             const std::string& place) {
  constexpr std::size_t kMaxExamples = 3;
  const std::vector<std::int64_t> known = known_codes(column.categories, feature.categories);
  std::vector<bool> is_counted(known.size());
  UnknownValues unknown;
  std::vector<double> codes;
  codes.reserve(column.codes.size());
  for (const std::int32_t code : column.codes) {
    if (code < 0) {
      codes.push_back(kMissingValue);
      continue;
    }
    const auto at = static_cast<std::size_t>(code);
    codes.push_back(static_cast<double>(known[at]));
    if (known[at] != kUnknown) continue;
    ++unknown.count;
    if (unknown.examples.size() < kMaxExamples && !is_counted[at])
      unknown.examples.push_back(column.categories[at]);
    is_counted[at] = true;
  }
  warn_of(unknown, place, feature.name);
  return codes;
}

// --- Features and labels ---

const TableColumn& column_for(const Table& table, const std::string& name, const TableSchema& schema,
                              const std::string& place) {
  if (const TableColumn* column = table.find(name)) return *column;
  std::vector<std::string> names;
  for (const TableFeature& feature : schema.features) names.push_back(feature.name);
  throw DataError(
      {.place = place,
       .found = "the column '" + one_line(name) + "' is missing",
       .wanted = names.size() <= 20
                     ? "the columns that the model was trained on: " + list_names(names)
                     : "the " + std::to_string(names.size()) + " columns that the model was trained on"});
}

at::Tensor raw_of(const Table& table, const TableSchema& schema, const std::string& missing,
                  const std::string& place) {
  const std::size_t width = schema.features.size();
  at::Tensor raw =
      at::empty({static_cast<std::int64_t>(table.num_rows), static_cast<std::int64_t>(width)}, at::kDouble);
  auto* const out = raw.mutable_data_ptr<double>();
  std::vector<std::string> missing_values;  // the first one of each column, if they are errors
  for (std::size_t i = 0; i < width; ++i) {
    bool is_complete = true;
    const TableFeature& feature = schema.features[i];
    const TableColumn& column = column_for(table, feature.name, schema, place);
    const std::vector<double> values =
        feature.kind == ColumnKind::number ? column.numbers : codes_of(column, feature, place);
    for (std::size_t row = 0; row < values.size(); ++row) {
      out[row * width + i] = values[row];
      require_float32(values[row], table, row, feature.name, place);
      if (missing != "error" || !std::isnan(values[row]) || !is_complete) continue;
      is_complete = false;
      missing_values.emplace_back(DataError({.place = row_place(table, row, feature.name, place),
                                             .found = "the value is missing",
                                             .wanted = "a value in every row",
                                             .remedy = "fill it in, or set data.missing to \"median\""})
                                      .what());
    }
  }
  if (!missing_values.empty()) throw DataError({.found = joined(missing_values, "\n")});
  return raw;
}

std::vector<std::string> ids_of(const Table& table, const TableSchema& schema) {
  const TableColumn* column = schema.id.empty() ? nullptr : table.find(schema.id);
  if (column == nullptr) return {};
  std::vector<std::string> ids;
  for (const std::int32_t code : column->codes)
    ids.push_back(code < 0 ? "" : column->categories[static_cast<std::size_t>(code)]);
  return ids;
}

// --- The schema of a file ---

bool is_predicted(const std::string& name, const TableDataOptions& options) {
  return name == options.label || is_in(options.target, name);
}

std::vector<std::string> feature_names(const Table& table, const TableDataOptions& options,
                                       const std::string& place) {
  if (options.features.empty()) {
    std::vector<std::string> names = names_of(table);
    std::erase_if(names, [&](const std::string& name) {
      return is_in(options.dates, name) || name == options.id || name == options.group ||
             name == options.series || name == options.time || name == options.weights ||
             (is_predicted(name, options) && !options.window) || is_in(options.exclude, name);
    });
    if (names.empty())
      throw DataError({.place = place,
                       .found = "no column is left for the model to read",
                       .wanted = "a column besides target, label, id, group, series, time, and weights"});
    return names;
  }
  std::vector<std::string> features;
  for (const std::string& name : options.features) {
    if (is_in(options.dates, name))
      std::ranges::copy(date_columns(table, name), std::back_inserter(features));
    else
      features.push_back(name);
    require_column(table, name, "data.features", place);
    // A window has past values of what it predicts.
    const bool is_label = is_predicted(name, options) && !options.window;
    if (is_label || name == options.id ||
        std::count(options.features.begin(), options.features.end(), name) > 1)
      throw ConfigError({.place = "data.features",
                         .found = "'" + name + "' is " +
                                  (is_label             ? "also to be predicted"
                                   : name == options.id ? "also data.id"
                                                        : "listed twice"),
                         .wanted = "distinct columns that the model reads"});
  }
  for (const std::string& name : features)
    if (std::ranges::count(features, name) > 1)
      throw ConfigError({.place = "data.features",
                         .found = "'" + one_line(name) + "' is also a part of its date",
                         .wanted = "the date, or single parts of it"});
  return features;
}

void take_classes(const TableColumn& column, const TableDataOptions& options, const std::string& place,
                  TableSchema& schema) {
  schema.label_separator = options.label_separator;
  schema.classes = options.label_separator.empty() ? class_names_of(column)
                                                   : classes_in_sets(column, options.label_separator);
  if (!options.label_separator.empty() && schema.classes.empty())
    throw DataError({.place = column_place(place, column.name),
                     .found = "no row has a label",
                     .wanted = "labels such as cat" + options.label_separator + "dog"});
}

void refuse_wide_encoding(const TableSchema& schema, const std::string& place) {
  if (schema.num_encoded() <= kMaxEncoded) return;
  const auto widest = std::max_element(
      schema.features.begin(), schema.features.end(),
      [](const auto& a, const auto& b) { return a.categories.size() < b.categories.size(); });
  throw DataError(
      {.place = column_place(place, widest->name),
       .found = std::to_string(widest->categories.size()) + " categories, each with a column of its own",
       .wanted = "at most " + std::to_string(kMaxEncoded) + " columns in all",
       .remedy = "omit the column from data.features, or set it as data.id"});
}

}  // namespace

TableOptions layout_of(const TableDataOptions& options) {
  const auto character = [](const std::string& text) { return text.empty() ? '\0' : text.front(); };
  return {.delimiter = options.delimiter == "auto" ? '\0' : character(options.delimiter),
          .has_header = options.header,
          .num_skipped_lines = static_cast<std::size_t>(options.skip_rows),
          .comment = character(options.comment),
          .thousands = character(options.thousands),
          .decimal = character(options.decimal),
          .na_values = options.na_values.all,
          .na_values_of = options.na_values.by_name,
          .renamed = options.rename};
}

const TableColumn& require_column(const Table& table, const std::string& name, const std::string& key,
                                  const std::string& place) {
  if (const TableColumn* column = table.find(name)) return *column;
  throw ConfigError(missing_column(table, name, key, place));
}

ErrorParts missing_column(const Table& table, const std::string& name, const std::string& key,
                          const std::string& place) {
  const std::vector<std::string> names = names_of(table);
  const std::string near = nearest(name, names);
  return {.place = key,
          .found = place + " has no column '" + name + "'",
          .wanted = names.size() <= 20 ? "one of " + list_names(names) : "the name of a column",
          .remedy = near.empty() ? "" : "did you mean '" + near + "'?"};
}

TableSchema schema_of(const Table& table, const TableDataOptions& options, const std::string& place) {
  TableSchema schema{
      .targets = options.target, .label = options.label, .id = options.id, .dates = options.dates};
  if (options.window) {
    schema.window = *options.window;
    schema.horizon = options.horizon;
    schema.series = options.series;
    schema.time = options.time;
  }
  for (const std::string& name : options.target)
    require_numbers(require_column(table, name, "data.target", place), place);
  if (!options.label.empty())
    take_classes(require_column(table, options.label, "data.label", place), options, place, schema);
  if (!options.id.empty()) require_column(table, options.id, "data.id", place);
  for (const std::string& name : feature_names(table, options, place)) {
    const TableColumn& column = *table.find(name);
    schema.features.push_back({.name = name,
                               .kind = column.kind,
                               .categories = column.categories,
                               .is_declared = is_in(options.categories, name)});
  }
  std::set<std::string> used{options.label, options.id, options.group, options.series};
  for (const TableFeature& feature : schema.features) used.insert(feature.name);
  for (const TableColumn& column : table.columns)
    if (used.contains(column.name) && !is_in(options.categories, column.name)) store_unified(column, schema);
  return schema;
}

void keep_categories_of(const Table& table, const std::vector<std::int64_t>& rows, TableSchema& schema) {
  for (TableFeature& feature : schema.features) {
    if (feature.kind == ColumnKind::number) continue;
    const TableColumn& column = *table.find(feature.name);
    std::vector<bool> is_used(column.categories.size());
    for (const std::int64_t row : rows)
      if (const std::int32_t code = column.codes[static_cast<std::size_t>(row)]; code >= 0)
        is_used[static_cast<std::size_t>(code)] = true;
    feature.categories.clear();
    for (std::size_t code = 0; code < is_used.size(); ++code)
      if (is_used[code]) feature.categories.push_back(column.categories[code]);
  }
}

void drop_empty_features(const Table& table, const std::vector<std::int64_t>& rows,
                         const std::vector<std::string>& listed, TableSchema& schema,
                         const std::string& place) {
  std::vector<std::string> empty;
  std::erase_if(schema.features, [&](const TableFeature& feature) {
    const TableColumn& column = *table.find(feature.name);
    const bool is_empty = std::ranges::all_of(
        rows, [&](std::int64_t row) { return column.is_missing(static_cast<std::size_t>(row)); });
    if (!is_empty || is_in(listed, feature.name)) return false;
    empty.push_back(feature.name);
    return true;
  });
  if (empty.empty()) return;
  if (schema.features.empty())
    throw DataError({.place = place,
                     .found = "the training rows have no value in any column that the model reads",
                     .wanted = "at least one"});
  log_warning(place + ": without any value in the training rows, and so omitted: " + list_names(empty));
}

void WrongRows::add(std::size_t row, const std::string& column, const ErrorParts& error) {
  errors_.emplace(row, DataError(error).what());
  values_.add_value(column, error);
}

void WrongRows::skip_or_throw(bool skips, Table& table) {
  if (errors_.empty()) return;
  if (!skips) throw_all(values_.errors());
  const std::vector<std::size_t> numbers = row_numbers(table);
  std::vector<bool> is_kept(table.num_rows, true);
  std::vector<BrokenRow> dropped;
  for (const auto& [row, error] : errors_) {
    is_kept[row] = false;
    dropped.push_back({.row = numbers[row], .error = error});
  }
  remove_rows(is_kept, dropped, table);
}

void skip_rows_without(const std::vector<std::string>& names, Table& table, const std::string& place) {
  const std::vector<std::size_t> numbers = row_numbers(table);
  std::vector<bool> is_kept(table.num_rows, true);
  std::vector<BrokenRow> dropped;
  for (const std::string& name : names) {
    const TableColumn* const column = table.find(name);
    if (column == nullptr) continue;
    for (std::size_t row = 0; row < table.num_rows; ++row) {
      if (!column->is_missing(row) || !is_kept[row]) continue;
      is_kept[row] = false;
      dropped.push_back({.row = numbers[row],
                         .error = DataError(missing_label(number_place(numbers[row], name, place))).what()});
    }
  }
  remove_rows(is_kept, dropped, table);
}

TableRows rows_of(const Table& table, const TableSchema& schema, const std::string& missing,
                  const std::string& place) {
  refuse_wide_encoding(schema, place);
  return {.raw = raw_of(table, schema, missing, place), .ids = ids_of(table, schema)};
}

std::vector<std::int64_t> groups_of(const Table& table, const TableColumn& column, const std::string& place) {
  std::vector<std::int64_t> groups(column.codes.begin(), column.codes.end());
  if (column.kind == ColumnKind::number) {
    std::vector<double> distinct(column.numbers);
    std::erase_if(distinct, [](double number) { return std::isnan(number); });
    std::sort(distinct.begin(), distinct.end());
    for (const double number : column.numbers)
      groups.push_back(std::isnan(number)
                           ? -1
                           : std::lower_bound(distinct.begin(), distinct.end(), number) - distinct.begin());
  }
  for (std::size_t row = 0; row < groups.size(); ++row)
    if (groups[row] < 0)
      throw DataError({.place = row_place(table, row, column.name, place),
                       .found = "the group is missing",
                       .wanted = "a value in every row"});
  return groups;
}

TableOptions layout_in(const std::filesystem::path& file, const TableDataOptions& options) {
  TableOptions layout = layout_of(options);
  if (is_json_lines_file(file)) layout.thousands = 0, layout.decimal = '.';
  return layout;
}

std::vector<double> times_of(const Table& table, const TableColumn& column, const TableDataOptions& options,
                             const std::string& place, WrongRows* wrong) {
  const auto refuse = [&](std::size_t row, const std::string& found) {
    const ErrorParts error{.place = row_place(table, row, column.name, place),
                           .found = found,
                           .wanted = "a number, or a date such as 2026-11-29 or 2026-11-29T15:30:00Z"};
    if (wrong == nullptr) throw DataError(error);
    wrong->add(row, column.name, error);
  };
  for (std::size_t row = 0; row < table.num_rows; ++row)
    if (column.is_missing(row)) refuse(row, "the time is missing");
  if (column.kind == ColumnKind::number) return column.numbers;
  const ValuesOfColumns all(layout_in(place, options), place);
  const TableValues& values = all.of(column.name);
  std::vector<double> numbers, dates;  // of each category; NaN: none
  for (const std::string& text : column.categories) {
    numbers.push_back(values.number(text).value_or(kMissingValue));
    dates.push_back(iso_time(text).value_or(IsoTime{kMissingValue}).seconds);
  }
  const auto num_read = [&](const std::vector<double>& times) {
    return std::ranges::count_if(column.codes, [&](std::int32_t code) {
      return code >= 0 && !std::isnan(times[static_cast<std::size_t>(code)]);
    });
  };
  const std::vector<double>& by_code = num_read(numbers) > num_read(dates) ? numbers : dates;
  std::vector<double> times;
  for (std::size_t row = 0; row < table.num_rows; ++row) {
    const auto code = static_cast<std::size_t>(column.codes[row]);
    times.push_back(column.is_missing(row) ? kMissingValue : by_code[code]);
    if (!column.is_missing(row) && std::isnan(times.back()))
      refuse(row, "'" + shortened(one_line(column.categories[code]), 40) + "' is not a time");
  }
  return times;
}

at::Tensor weights_of(const Table& table, const TableColumn& column, const std::string& place) {
  if (column.kind != ColumnKind::number)
    throw DataError(
        {.place = column_place(place, column.name), .found = "the weights are texts", .wanted = "numbers"});
  at::Tensor weights = at::empty({static_cast<std::int64_t>(column.numbers.size())}, at::kDouble);
  for (std::size_t row = 0; row < column.numbers.size(); ++row) {
    const double weight = column.numbers[row];
    if (!(weight >= 0))
      throw DataError(
          {.place = row_place(table, row, column.name, place),
           .found = std::isnan(weight) ? "the weight is missing" : "the weight " + number_text(weight),
           .wanted = "a number that is at least 0"});
    weights.mutable_data_ptr<double>()[row] = weight;
  }
  return weights;
}

}  // namespace kindling
