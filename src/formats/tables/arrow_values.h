#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kindling/formats/arrow.h"

namespace kindling {

// What the values of an Arrow column become.
enum class ArrowKind : std::uint8_t { null, boolean, number, decimal, text, date };

struct ArrowType {
  ArrowKind kind = ArrowKind::null;
  char code = 0;                // of numbers and texts: the format's character
  bool is_view = false;         // of texts
  std::int64_t bytes = 0;       // of a value
  int scale = 0;                // of decimals
  std::int64_t per_second = 1;  // of dates: units in a second; 0: days
  bool has_zone = false;        // of dates
};

// Returns the type by its format string. Throws DataError with the place for one that a table cannot hold.
ArrowType arrow_type(const char* format, const std::string& place);

// A column of one batch.
class ArrowValues {
 public:
  // `offset`: of the structure that the column belongs to. All must outlive this object.
  ArrowValues(const ArrowArray& array, const ArrowType& type, std::int64_t offset) noexcept
      : array_(array), type_(type), offset_(offset + array.offset) {}

  bool is_null(std::int64_t row) const;
  // Of a number or decimal that is not null.
  double number(std::int64_t row) const;
  // Of an integer that is not null, such as a code of a category.
  std::int64_t integer(std::int64_t row) const;
  // False for a date outside of the years 1 to 9999.
  bool has_date(std::int64_t row) const;
  // Of a text, boolean, or date that has_date().
  std::string text(std::int64_t row) const;

 private:
  template <class Value>
  Value value(std::int64_t row, std::size_t buffer = 1) const;
  std::int64_t units_per_day() const { return type_.per_second == 0 ? 1 : 86'400 * type_.per_second; }
  std::string date(std::int64_t row) const;
  std::string viewed_text(std::int64_t row) const;

  const ArrowArray& array_;
  const ArrowType& type_;
  std::int64_t offset_;
};

}  // namespace kindling
