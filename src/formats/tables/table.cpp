#include "kindling/formats/table.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "base/error_kind.h"
#include "base/joined.h"
#include "base/utf8.h"
#include "formats/tables/column_kinds.h"
#include "formats/tables/csv_fields.h"
#include "formats/tables/csv_number.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

bool is_missing_text(std::string_view text) {
  constexpr std::array<std::string_view, 7> kTexts{"", "NA", "N/A", "NaN", "nan", "NULL", "null"};
  return text.size() <= 4 && std::find(kTexts.begin(), kTexts.end(), text) != kTexts.end();
}

// Returns "1234.5" for "1,234.5", "1.234,5" and "1234,5"; the text itself if it has no comma.
std::string with_decimal_point(std::string_view text) {
  const bool is_decimal = text.find(',') == text.rfind(',') && text.rfind('.') + 1 <= text.rfind(',') + 1;
  std::string number;
  for (const char c : text) {
    if (c == ',' && is_decimal)
      number += '.';
    else if (c != ',' && (c != '.' || !is_decimal))
      number += c;
  }
  return number;
}

// The kinds of mistakes that a number contains, which its hint names.
enum class NumberMistake : std::uint8_t { none, comma, range, text };

NumberMistake mistake_in(std::string_view text) {
  if (text.find_first_of("0123456789iI.+-") != 0) return NumberMistake::text;  // most texts
  if (csv_number(text)) return NumberMistake::none;
  if (text.find(',') != std::string_view::npos)
    return csv_number(with_decimal_point(text)) ? NumberMistake::comma : NumberMistake::text;
  std::string lower = lower_case(text);
  if (lower.starts_with('+') || lower.starts_with('-')) lower.erase(0, 1);
  if (lower == "inf" || lower == "infinity") return NumberMistake::range;
  const std::size_t exponent = lower.find('e');
  // "1e999", whose mantissa alone is a number.
  const bool is_number = exponent != std::string::npos && csv_number(lower.substr(0, exponent)) &&
                         csv_number(lower.substr(exponent + 1));
  return is_number ? NumberMistake::range : NumberMistake::text;
}

std::string hint_for(std::string_view text) {
  switch (mistake_in(text)) {
    case NumberMistake::comma:
      return "write a decimal point and no thousands separators: " + with_decimal_point(text);
    case NumberMistake::range:
      return "replace the value, or leave the field empty if it is missing";
    default:
      return "correct the value, or declare the column as one of categories";
  }
}

using Stage = ColumnState::Stage;

// Counts a field that occurs several times. Numbers with a mistake, such as 1,5, are meant as numbers.
void count_field(ColumnState& state, std::string_view text, std::size_t times) {
  if (is_missing_text(text)) return;
  (mistake_in(text) == NumberMistake::text ? state.num_texts : state.num_numbers) += times;
}

class TableParser {
 public:
  TableParser(std::string_view text, const std::string& place, const TableOptions& options)
      : text_(text), options_(options), fields_(text, options.delimiter, place) {}

  Table parse() {
    take_header();
    if (!options_.skips_others) require_columns(options_, names_, fields_.place());
    kinds_ = declared_kinds(options_, fields_.place());
    do {
      columns_.clear();
      for (const std::string& name : names_) columns_.emplace_back(name, kinds_, options_);
      has_quoted_missing_.assign(names_.size(), false);
      reserve_rows();
      take_rows();
    } while (broken_.begin_pass() || has_wrong_kinds() || take_mixed_columns());
    return table_of(std::move(columns_), num_rows_, broken_);
  }

 private:
  void take_header() {
    if (!fields_.begin_row())
      throw DataError({.place = fields_.place(),
                       .found = "the table is empty",
                       .wanted = "a header row with the names of the columns"});
    while (!fields_.is_row_done()) {
      const CsvField field = fields_.take();
      if (names_.size() == kMaxTableColumns) throw DataError(too_many_columns(fields_.row_text()));
      if (field.text.empty())
        throw DataError(
            {.place = fields_.where(),
             .found = "the column has no name",
             .wanted = "a header row with a name for each column",
             .remedy = "name the column, or write the table without row numbers (pandas: index=False)"});
      if (!is_utf8(field.text)) throw DataError(not_utf8(fields_.where()));
      names_.emplace_back(field.text);
    }
    check_names();
  }

  // Goes to the first row.
  void begin_rows() {
    fields_ = CsvFields(text_, options_.delimiter, fields_.place());
    fields_.set_names(names_);
    broken_.rewind();
    fields_.begin_row();
    while (!fields_.is_row_done()) fields_.take();
  }

  void check_names() const {
    const std::string place = fields_.row_text();
    if (std::all_of(names_.begin(), names_.end(),
                    [](const auto& name) { return csv_number(name).has_value(); }))
      throw DataError({.place = place,
                       .found = "the first row contains numbers only",
                       .wanted = "a header row with the names of the columns",
                       .remedy = "insert a first line such as x,y,price"});
    if (names_.size() == 1 && names_[0].find_first_of(";\t,|") != std::string::npos)
      throw DataError({.place = place,
                       .found = "one column, " + quoted_text(names_[0]),
                       .wanted = "fields separated by " + quoted_text({&options_.delimiter, 1}),
                       .remedy = "set the delimiter to that of the file"});
    std::vector<std::string_view> sorted(names_.begin(), names_.end());
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice != sorted.end())
      throw DataError({.place = place,
                       .found = "two columns have the name '" + one_line(*twice) + "'",
                       .wanted = "distinct names",
                       .remedy = "rename one of them"});
  }

  // Guesses the number of rows from the first lines. A row has at least a byte per column, so that this is at
  // most eight times the size of the text.
  void reserve_rows() {
    const std::string_view start = text_.substr(0, 1 << 16);
    const auto lines = static_cast<std::size_t>(std::count(start.begin(), start.end(), '\n'));
    const double per_byte =
        start.empty() ? 0 : 1.05 * static_cast<double>(lines) / static_cast<double>(start.size());
    const auto guess = static_cast<std::size_t>(per_byte * static_cast<double>(text_.size()));
    const std::size_t rows = std::min(guess, text_.size() / columns_.size());
    for (ColumnState& state : columns_) {
      if (state.stage == Stage::numbers) state.column.numbers.reserve(rows);
    }
  }

  // Calls take() for each row that is not skipped.
  template <class Take>
  void take_all_rows(const Take& take) {
    begin_rows();
    while (fields_.begin_row()) {
      if (!options_.skips_broken) {  // a fifth faster than with what follows
        take();
        continue;
      }
      if (!broken_.contains(fields_.row())) try {
          take();
          fields_.require_row_done();
        } catch (const RowError& error) {
          broken_.add(fields_.row(), error.what());
        }
      fields_.skip_row();
    }
  }

  void take_rows() {
    num_rows_ = 0;
    take_all_rows([this] { take_row(); });
  }

  void take_row() {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      ColumnState& state = columns_[i];
      if (i > 0 && fields_.is_row_done()) refuse_short_row(i);
      double number = kMissing;
      if (state.stage == Stage::skipped) {
        fields_.take();
      } else if (state.stage != Stage::numbers) {
        take_text(state);
      } else if (fields_.take_number(number)) {
        ++state.num_numbers;
        state.column.numbers.push_back(number);
      } else {
        take_other(i);
      }
    }
    ++num_rows_;
  }

  bool has_wrong_kinds() {
    for (ColumnState& state : columns_)
      if (state.stage == Stage::categories && !state.is_declared) count_categories(state);
    const std::vector<std::string> names = wrong_kinds(columns_, options_);
    for (const std::string& name : names) kinds_.emplace(name, DeclaredKind{});
    return !names.empty();
  }

  static void count_categories(ColumnState& state) {
    const std::vector<std::string>& names = state.index.names();
    std::vector<std::size_t> times(names.size());
    for (const std::int32_t code : state.column.codes) {
      if (code >= 0) ++times[static_cast<std::size_t>(code)];
    }
    for (std::size_t i = 0; i < names.size(); ++i) count_field(state, names[i], times[i]);
  }

  [[noreturn]] void refuse_short_row(std::size_t num_fields) const {
    throw RowError({.place = fields_.row_text() + ", column '" + one_line(names_[num_fields]) + "'",
                    .found = "the row ends before this column, after " + std::to_string(num_fields) +
                             (num_fields == 1 ? " field" : " fields"),
                    .wanted = std::to_string(names_.size()) + " fields, as in the header"});
  }

  void take_text(ColumnState& state) {
    const CsvField field = fields_.take();
    if (state.stage == Stage::categories)
      state.column.codes.push_back(code_of(field, state));
    else
      count_field(state, field.text, 1);
  }

  void take_other(std::size_t i) {
    ColumnState& state = columns_[i];
    const CsvField field = fields_.take();
    const bool is_missing = is_missing_text(field.text);
    if (is_missing && field.is_quoted) has_quoted_missing_[i] = true;
    const std::optional<double> number = is_missing ? kMissing : csv_number(field.text);
    if (number) {
      if (!is_missing) ++state.num_numbers;
      state.column.numbers.push_back(*number);
      return;
    }
    // If it is certain that none of the fields so far is a category, the others are taken at once.
    const bool is_mixed = state.num_numbers > 0 || has_quoted_missing_[i];
    const bool is_wrong = mistake_in(field.text) != NumberMistake::text;
    state.leave_numbers({.place = fields_.where(),
                         .found = quoted_text(field.text),
                         .wanted = is_wrong ? "a finite number with a decimal point" : "a number",
                         .remedy = hint_for(field.text)},
                        is_mixed);
    if (is_mixed) {
      count_field(state, field.text, 1);
    } else {
      state.column.codes.assign(num_rows_, -1);
      state.column.codes.push_back(code_of(field, state));
    }
  }

  // Takes these as categories. Returns true if it has found broken rows.
  bool take_mixed_columns() {
    const auto is_mixed = [](const ColumnState& state) { return state.stage == Stage::mixed; };
    if (std::none_of(columns_.begin(), columns_.end(), is_mixed)) return false;
    take_all_rows([&] {
      for (ColumnState& state : columns_) {
        const CsvField field = fields_.take();
        if (is_mixed(state)) state.column.codes.push_back(code_of(field, state));
      }
    });
    return broken_.begin_pass();
  }

  std::int32_t code_of(const CsvField& field, ColumnState& state) {
    const bool is_empty_category = state.declared.has_empty_category && field.text.empty();
    if (!field.is_quoted && !is_empty_category && is_missing_text(field.text)) return -1;
    if (const std::int32_t code = state.index.find(field.text); code >= 0) return code;
    if (!is_utf8(field.text)) throw RowError(not_utf8(fields_.where()));
    return state.code_of(field.text, [&] { return fields_.where(); });
  }

  std::string_view text_;
  const TableOptions& options_;
  CsvFields fields_;
  std::vector<std::string> names_;
  DeclaredKinds kinds_;  // among them columns of numbers that contain other values
  std::vector<ColumnState> columns_;
  std::vector<bool> has_quoted_missing_;  // of columns: "" or "NA", which may be a category
  std::size_t num_rows_ = 0;
  BrokenRows broken_;
};

void check_options(const TableOptions& options) {
  if (std::string_view(",;\t|").find(options.delimiter) == std::string_view::npos)
    throw DataError({.place = "TableOptions::delimiter",
                     .found = quoted_text({&options.delimiter, 1}),
                     .wanted = "a comma, semicolon, tab or |"});
}

}  // namespace

const TableColumn* Table::find(std::string_view name) const {
  for (const TableColumn& column : columns) {
    if (column.name == name) return &column;
  }
  return nullptr;
}

std::size_t Table::row_number(std::size_t index) const {
  std::size_t number = index + 1;
  for (const BrokenRow& row : skipped) {
    if (row.row > number) break;
    ++number;
  }
  return number;
}

Table parse_table(std::string_view text, const std::string& place, const TableOptions& options) {
  check_options(options);
  refuse_utf16(text, place, "save it again as \"CSV UTF-8\"");
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  return TableParser(text, place, options).parse();
}

Table read_table(const std::filesystem::path& path, const TableOptions& options) {
  const std::string text = with_errors_as<DataError>([&] { return read_file(path, options.max_bytes); });
  if (is_json_lines_file(path)) return parse_json_lines(text, path.string(), options);
  return parse_table(text, path.string(), options);
}

}  // namespace kindling
