#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tables/csv_layout.h"

namespace kindling {

struct CsvField {
  std::string_view text{};  // valid until the next field is taken
  bool is_quoted = false;
};

// Takes the fields of a CSV text one after another. The text must outlive the reader.
class CsvFields {
 public:
  CsvFields(std::string_view text, const CsvLayout& layout, std::string place);

  // Skips blank lines and begins the next row; false at the end of the text. Throws RowError while fields of
  // the current row are left.
  bool begin_row();
  bool is_row_done() const { return is_row_done_; }
  // Throws RowError while fields of the row are left.
  void require_row_done() const;
  // Goes to the end of the row; if its quotes are wrong, to the end of its first line.
  void skip_row();
  CsvField take();  // throws RowError for wrong quotes
  // Takes the next field if it is an unquoted number without spaces, which is faster than take(). It may
  // leave numbers that are seldom written, such as those with an exponent.
  bool take_number(double& number);

  std::size_t row() const { return row_; }  // 0: the header; without a header, rows count from 1, too
  // The names that error messages use from now on; they must outlive the reader.
  void set_names(const std::vector<std::string>& names) { names_ = &names; }
  // Returns "houses.csv, row 3 (line 4), column 'price'", for the field that was taken last.
  std::string where() const;
  std::string row_text() const;  // without the column
  const std::string& place() const { return place_; }

 private:
  CsvField take_quoted();
  void end_field();
  void skip_lines_without_fields();
  bool ends_field(char c) const { return ends_field_[static_cast<unsigned char>(c)]; }
  void skip_line();
  void skip_line_end();

  const char *at_, *row_begin_ = nullptr;
  const char* end_;
  char delimiter_, comment_;
  NumberMarks numbers_;
  bool has_numbers_;  // that no delimiter divides
  std::string place_;
  std::array<bool, 256> ends_field_{};
  const std::vector<std::string>* names_ = nullptr;
  std::string unescaped_;
  std::size_t line_ = 1, row_line_ = 1, row_ = 0, num_taken_ = 0;
  bool has_begun_ = false, is_row_done_ = true, has_wrong_quotes_ = false;
};

}  // namespace kindling
