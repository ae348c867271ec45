#include "data/sources/table_places.h"

#include <cmath>

#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/base/text.h"

namespace kindling {

std::string column_place(const std::string& place, const std::string& name) {
  return place + ", column '" + one_line(name) + "'";
}

std::string number_place(std::size_t number, const std::string& name, const std::string& place) {
  return place + ", row " + std::to_string(number) + ", column '" + one_line(name) + "'";
}

std::string row_place(const Table& table, std::size_t row, const std::string& name,
                      const std::string& place) {
  return number_place(table.row_number(row), name, place);
}

void require_float32(double value, const Table& table, std::size_t row, const std::string& name,
                     const std::string& place) {
  if (std::isfinite(value) && std::isinf(static_cast<float>(value)))
    throw DataError({.place = row_place(table, row, name, place),
                     .found = number_text(value) + ", which float32 cannot represent",
                     .wanted = "a number between -3.4e38 and 3.4e38",
                     .remedy = "use another unit, or the logarithm"});
}

}  // namespace kindling
