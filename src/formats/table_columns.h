#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/category_index.h"
#include "kindling/base/error.h"
#include "kindling/formats/table.h"

// What the readers of CSV and of JSON lines share.
namespace kindling {

// An error in one row, which can be skipped.
class RowError : public DataError {
  using DataError::DataError;
};

// The rows that a reader skips. Whether a row is broken can depend on the rows before it, and a broken row
// can leave values in its columns. So the file is read again until no more are found.
class BrokenRows {
 public:
  // True for a row that an earlier pass has found. The rows of a pass come in order, counted from 1.
  bool contains(std::size_t row) {
    while (at_ < known_.size() && known_[at_].row < row) ++at_;
    return at_ < known_.size() && known_[at_].row == row;
  }
  void add(std::size_t row, std::string error) { found_.push_back({row, std::move(error)}); }
  // Begins with the first row again.
  void rewind() { at_ = 0; }
  // Begins the next pass; false: the last one has found nothing.
  bool begin_pass();
  std::vector<BrokenRow> take() { return std::move(known_); }

 private:
  std::vector<BrokenRow> known_{}, found_{};  // by row
  std::size_t at_ = 0;
};

inline constexpr std::size_t kMaxTableColumns = 65'536;
inline constexpr std::size_t kMaxCategories = 10'000'000;

// Sorts the texts of the index bytewise into the column's categories, and replaces its codes, which are
// numbers of the index.
void sort_categories(const CategoryIndex& index, TableColumn& column);

// Returns text in quotes for a message, on one line and shortened.
std::string quoted_text(std::string_view text);

// All throw DataError, or return its parts. `place` is the file, or a row or field of it.
void refuse_utf16(std::string_view text, const std::string& place, const std::string& remedy);
ErrorParts not_utf8(const std::string& place);
ErrorParts too_many_columns(const std::string& place);
[[noreturn]] void refuse_number_of_categories(const std::string& place);
[[noreturn]] void refuse_two_kinds(const std::string& name, const std::string& place);
// For a column that the options declare and the file lacks; `names` are those of the file.
[[noreturn]] void refuse_unknown_column(const std::string& name, const std::vector<std::string>& names,
                                        const std::string& place);

}  // namespace kindling
