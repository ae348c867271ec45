#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/formats/table.h"

namespace kindling {

// What a text of a table means: a missing value, a number, or neither, with a hint.
class TableValues {
 public:
  // `marks`: of missing values, besides the usual ones. Throws DataError for contradictory options.
  TableValues(const TableOptions& options, std::vector<std::string> marks, const std::string& place);

  // Most texts are told apart by their first character: a comparison with each mark would take a fifth of the
  // time of reading a table.
  bool is_missing(std::string_view text) const {
    return text.empty() || (begins_mark_[static_cast<unsigned char>(text[0])] && is_missing_mark(text));
  }
  // True if this is one of TableOptions::na_values, which also JSON has as texts.
  bool is_marked_missing(std::string_view text) const;
  // The same for a number: -999 marks a missing value if na_values has "-999" or "-999.0".
  bool is_marked_missing(double number) const {
    return !marked_numbers_.empty() &&
           std::find(marked_numbers_.begin(), marked_numbers_.end(), number) != marked_numbers_.end();
  }
  // Returns the number that is all of the text.
  std::optional<double> number(std::string_view text) const;
  // True for a text that is meant as a number, such as 1,5.
  bool is_meant_as_number(std::string_view text) const;
  // What to do about a text in a column of numbers.
  std::string wanted_for(std::string_view text) const;
  std::string hint_for(std::string_view text) const;

 private:
  bool is_missing_mark(std::string_view text) const;
  enum class Mistake : std::uint8_t { none, comma, thousands, range, text };
  Mistake mistake_in(std::string_view text) const;
  // True if numbers are written as C++ writes them.
  bool is_plain() const { return decimal_ == '.' && thousands_ == 0; }

  std::vector<std::string> marks_;
  std::array<bool, 256> begins_mark_{};
  std::vector<double> marked_numbers_;
  const char thousands_, decimal_;
  bool takes_usual_marks_ = false;
};

// The values of each column: TableOptions::na_values_of can differ.
class ValuesOfColumns {
 public:
  // Throws DataError for contradictory options.
  ValuesOfColumns(const TableOptions& options, const std::string& place);
  const TableValues& of(const std::string& column) const {
    const auto found = by_name_.find(column);
    return found == by_name_.end() ? all_ : found->second;
  }

 private:
  TableValues all_;
  std::map<std::string, TableValues> by_name_;
};

}  // namespace kindling
