#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/tables/table_values.h"
#include "kindling/base/error.h"
#include "kindling/formats/table.h"

// What the readers of CSV and of JSON lines share: how the kinds of columns are found, and their errors.
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

// Numbers distinct texts in the order in which they are added; two or three times as fast as
// std::unordered_map.
class CategoryIndex {
 public:
  const std::vector<std::string>& names() const { return names_; }

  // Returns the number of the text, -1 if it has not been added.
  std::int32_t find(std::string_view text) const { return slots_.empty() ? -1 : slots_[position_of(text)]; }

  // Returns the number of the text, a new one if it has not been added before.
  std::int32_t add(std::string_view text) {
    if (2 * (names_.size() + 1) > slots_.size()) grow();
    std::int32_t& slot = slots_[position_of(text)];
    if (slot < 0) {
      slot = static_cast<std::int32_t>(names_.size());
      names_.emplace_back(text);
    }
    return slot;
  }

 private:
  // The position of the first free slot, or of the one with the number of the text.
  std::size_t position_of(std::string_view text) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = std::hash<std::string_view>{}(text)&mask;
    while (slots_[at] >= 0 && names_[static_cast<std::size_t>(slots_[at])] != text) at = (at + 1) & mask;
    return at;
  }

  void grow() {
    slots_.assign(slots_.empty() ? 16 : 2 * slots_.size(), -1);
    for (std::size_t i = 0; i < names_.size(); ++i)
      slots_[position_of(names_[i])] = static_cast<std::int32_t>(i);
  }

  std::vector<std::string> names_;
  std::vector<std::int32_t> slots_;  // numbers, -1: free; a power of two, at most half full
};

// What is known of a column before its first value.
struct DeclaredKind {
  ColumnKind kind = ColumnKind::number;
  bool has_empty_category = false;  // TableOptions::categories: an empty field is a category
};
using DeclaredKinds = std::unordered_map<std::string, DeclaredKind>;

// Throws DataError for a column that the options declare as numbers and as categories.
DeclaredKinds declared_kinds(const TableOptions& options, const std::string& place);

// A column that is read, and its kind as far as it has been found. It is one of numbers until its first text.
// `mixed`: numbers came before that text, so that their texts are read in a second pass.
struct ColumnState {
  enum class Stage : std::uint8_t { numbers, categories, mixed, skipped };

  ColumnState(std::string name, const DeclaredKinds& declared, const ValuesOfColumns& values,
              const TableOptions& options);

  // Ends the numbers at the first text, which the error describes. Throws it as RowError if the column is
  // declared as one of numbers.
  void leave_numbers(ErrorParts text, bool is_mixed);
  // Returns the code of a text, a new one if it is new. `where()` is for the error of too many.
  template <class Where>
  std::int32_t code_of(std::string_view text, const Where& where);

  TableColumn column{};
  const TableValues* values = nullptr;  // what its texts mean
  Stage stage = Stage::numbers;
  DeclaredKind declared{};
  bool is_declared = false;
  std::size_t num_numbers = 0, num_texts = 0;  // without missing values
  std::optional<ErrorParts> first_text{};
  CategoryIndex index{};
};

// Returns the columns in which at least half of the values are numbers, but some are not: these are probably
// mistakes, and their rows broken. Throws the error of the first one unless broken rows are skipped.
std::vector<std::string> wrong_kinds(std::span<const ColumnState> columns, const TableOptions& options);

// Sorts the categories of a column bytewise; its codes are numbers of the index.
void sort_categories(const CategoryIndex& index, TableColumn& column);

// Returns the columns that are not skipped, with their categories sorted bytewise.
Table table_of(std::vector<ColumnState> columns, std::size_t num_rows, BrokenRows& broken);

// Returns text in quotes for a message, on one line and shortened.
std::string quoted_text(std::string_view text);

// All throw DataError, or return its parts. `place` is the file, or a row or field of it.
void refuse_utf16(std::string_view text, const std::string& place, const std::string& remedy);
ErrorParts not_utf8(const std::string& place);
ErrorParts too_many_columns(const std::string& place);
[[noreturn]] void refuse_number_of_categories(const std::string& place);
// Returns the name in the table of a column of the file.
const std::string& renamed(const std::string& name, const TableOptions& options);
// For the first column that TableOptions::renamed has and `names` lack.
void require_renamed_columns(const TableOptions& options, const std::vector<std::string>& names,
                             const std::string& place);
// For the first column that the options declare and `names`, those of the file, lack.
void require_columns(const TableOptions& options, const std::vector<std::string>& names,
                     const std::string& place);

template <class Where>
std::int32_t ColumnState::code_of(std::string_view text, const Where& where) {
  if (const std::int32_t code = index.find(text); code >= 0) return code;
  if (index.names().size() == kMaxCategories) refuse_number_of_categories(where());
  return index.add(text);
}

}  // namespace kindling
