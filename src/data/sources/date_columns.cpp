#include "data/sources/date_columns.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "data/sources/table_places.h"
#include "formats/tables/iso_time.h"
#include "kindling/base/error.h"
#include "kindling/base/text.h"
#include "kindling/formats/table_schema.h"

namespace kindling {
namespace {

using Parts = std::array<double, kDateParts.size()>;

Parts parts_of(const IsoTime& time) {
  const std::chrono::sys_days date{std::chrono::days(time.day)};
  const std::chrono::year_month_day calendar(date);
  return {static_cast<double>(static_cast<int>(calendar.year())),
          static_cast<double>(static_cast<unsigned>(calendar.month())),
          static_cast<double>(std::chrono::weekday(date).iso_encoding()), static_cast<double>(time.hour),
          time.seconds};
}

// One for each category of the column.
std::vector<Parts> parts_in(const TableColumn& column, const Table& table, const std::string& place) {
  std::vector<Parts> parts;
  for (std::size_t code = 0; code < column.categories.size(); ++code) {
    const std::optional<IsoTime> time = iso_time(column.categories[code]);
    if (!time) {
      const auto row =
          std::ranges::find(column.codes, static_cast<std::int32_t>(code)) - column.codes.begin();
      throw DataError({.place = row_place(table, static_cast<std::size_t>(row), column.name, place),
                       .found = "'" + shortened(one_line(column.categories[code]), 40) + "' is not a date",
                       .wanted = "a date such as 2026-11-29 or 2026-11-29T15:30:00Z",
                       .remedy = "correct it, or remove the column from data.dates"});
    }
    parts.push_back(parts_of(*time));
  }
  return parts;
}

bool varies(const std::vector<Parts>& parts, std::size_t part) {
  return std::ranges::any_of(parts, [&](const Parts& one) { return one[part] != parts.front()[part]; });
}

}  // namespace

void add_date_columns(const std::string& name, bool only_varying, Table& table, const std::string& place) {
  const TableColumn* const column = table.find(name);
  if (column == nullptr) return;
  const std::vector<Parts> parts = parts_in(*column, table, place);
  std::vector<TableColumn> added;
  for (std::size_t part = 0; part < kDateParts.size(); ++part) {
    TableColumn numbers{.name = name + "." + kDateParts[part]};
    if (table.find(numbers.name) != nullptr)
      throw DataError({.place = place,
                       .found = "the file has a column '" + one_line(numbers.name) + "' already",
                       .wanted = "another name, because data.dates makes such a column"});
    if (only_varying && part + 1 < kDateParts.size() && !varies(parts, part)) continue;
    for (const std::int32_t code : column->codes)
      numbers.numbers.push_back(code < 0 ? std::numeric_limits<double>::quiet_NaN()
                                         : parts[static_cast<std::size_t>(code)][part]);
    added.push_back(std::move(numbers));
  }
  for (TableColumn& one : added) table.columns.push_back(std::move(one));
}

std::vector<std::string> date_columns(const Table& table, const std::string& name) {
  std::vector<std::string> names;
  for (const char* const part : kDateParts)
    if (table.find(name + "." + part) != nullptr) names.push_back(name + "." + part);
  return names;
}

}  // namespace kindling
