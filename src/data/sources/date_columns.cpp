#include "data/sources/date_columns.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "data/sources/table_places.h"
#include "formats/tables/iso_time.h"
#include "formats/tables/table_units.h"
#include "kindling/base/error.h"
#include "kindling/base/text.h"
#include "kindling/formats/table_schema.h"

namespace kindling {
namespace {

constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

using Parts = std::array<double, kDateParts.size()>;

Parts parts_of(const IsoTime& time) {
  const std::chrono::sys_days date{std::chrono::days(time.day)};
  const std::chrono::year_month_day calendar(date);
  return {static_cast<double>(static_cast<int>(calendar.year())),
          static_cast<double>(static_cast<unsigned>(calendar.month())),
          static_cast<double>(std::chrono::weekday(date).iso_encoding()), static_cast<double>(time.hour),
          time.seconds};
}

// One for each category of the column; nothing: it is not a date.
std::vector<std::optional<Parts>> parts_in(const TableColumn& column) {
  std::vector<std::optional<Parts>> parts;
  for (const std::string& text : column.categories) {
    const std::optional<IsoTime> time = iso_time(text);
    parts.push_back(time ? std::optional(parts_of(*time)) : std::nullopt);
  }
  return parts;
}

// Adds the rows of categories that `is_wrong`.
template <class IsWrong>
void add_wrong_rows(const Table& table, const TableColumn& column, const IsWrong& is_wrong,
                    const std::function<ErrorParts(std::string place, std::string found)>& error,
                    WrongRows& wrong, const std::string& place) {
  for (std::size_t row = 0; row < column.codes.size(); ++row) {
    if (column.codes[row] < 0 || !is_wrong(static_cast<std::size_t>(column.codes[row]))) continue;
    const std::string& text = column.categories[static_cast<std::size_t>(column.codes[row])];
    wrong.add(row, column.name,
              error(row_place(table, row, column.name, place), "'" + shortened(one_line(text), 40) + "'"));
  }
}

bool varies(const std::vector<std::optional<Parts>>& parts, std::size_t part) {
  const std::optional<Parts>* first = nullptr;
  for (const std::optional<Parts>& one : parts) {
    if (!one) continue;
    if (first == nullptr) first = &one;
    if ((*one)[part] != (**first)[part]) return true;
  }
  return false;
}

}  // namespace

void add_date_columns(const std::string& name, bool only_varying, Table& table, WrongRows& wrong,
                      const std::string& place) {
  const TableColumn* const column = table.find(name);
  if (column == nullptr) return;
  const std::vector<std::optional<Parts>> parts = parts_in(*column);
  add_wrong_rows(
      table, *column, [&](std::size_t code) { return !parts[code]; },
      [](std::string where, const std::string& found) {
        return ErrorParts{.place = std::move(where),
                          .found = found + " is not a date",
                          .wanted = "a date such as 2026-11-29 or 2026-11-29T15:30:00Z",
                          .remedy = "correct it, or remove the column from data.dates"};
      },
      wrong, place);
  std::vector<TableColumn> added;
  for (std::size_t part = 0; part < kDateParts.size(); ++part) {
    TableColumn numbers{.name = name + "." + kDateParts[part]};
    if (table.find(numbers.name) != nullptr)
      throw DataError({.place = place,
                       .found = "the file has a column '" + one_line(numbers.name) + "' already",
                       .wanted = "another name, because data.dates makes such a column"});
    if (only_varying && part + 1 < kDateParts.size() && !varies(parts, part)) continue;
    for (const std::int32_t code : column->codes)
      numbers.numbers.push_back(code < 0 || !parts[static_cast<std::size_t>(code)]
                                    ? kNoValue
                                    : (*parts[static_cast<std::size_t>(code)])[part]);
    added.push_back(std::move(numbers));
  }
  for (TableColumn& one : added) table.columns.push_back(std::move(one));
}

void remove_unit(const NumberUnit& unit, const TableOptions& options, const Table& table, WrongRows& wrong,
                 const std::string& place, TableColumn& column) {
  std::vector<std::optional<double>> numbers;
  for (const std::string& text : column.categories) numbers.push_back(number_with_unit(text, unit, options));
  add_wrong_rows(
      table, column, [&](std::size_t code) { return !numbers[code]; },
      [&](std::string where, const std::string& found) {
        return ErrorParts{.place = std::move(where),
                          .found = found,
                          .wanted = "a number with '" + unit_text(unit) + "', as in the training file",
                          .remedy = "convert it to this unit"};
      },
      wrong, place);
  for (const std::int32_t code : column.codes)
    column.numbers.push_back(code < 0 ? kNoValue
                                      : numbers[static_cast<std::size_t>(code)].value_or(kNoValue));
  column.kind = ColumnKind::number;
  column.codes.clear();
  column.categories.clear();
}

std::vector<std::string> date_columns(const Table& table, const std::string& name) {
  std::vector<std::string> names;
  for (const char* const part : kDateParts)
    if (table.find(name + "." + part) != nullptr) names.push_back(name + "." + part);
  return names;
}

}  // namespace kindling
