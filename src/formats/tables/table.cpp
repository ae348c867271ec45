#include "kindling/formats/table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "base/error_kind.h"
#include "base/joined.h"
#include "base/utf8.h"
#include "formats/tables/column_kinds.h"
#include "formats/tables/csv_fields.h"
#include "formats/tables/csv_layout.h"
#include "formats/tables/csv_number.h"
#include "formats/tables/table_values.h"
#include "formats/tables/wrong_values.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

using Stage = ColumnState::Stage;

class TableParser {
 public:
  TableParser(std::string_view text, const std::string& place, const TableOptions& options,
              WrongValues* wrong)
      : text_(text),
        options_(options),
        wrong_(wrong),
        values_(options, place),
        layout_(layout_of(text, options)),
        fields_(text, layout_, place) {}

  Table parse() {
    take_header();
    if (!options_.skips_others) require_columns(options_, names_, fields_.place());
    kinds_ = declared_kinds(options_, fields_.place());
    if (!row_name_.empty()) kinds_.emplace(row_name_, DeclaredKind{.kind = ColumnKind::category});
    do {
      columns_.clear();
      if (wrong_ != nullptr) wrong_->begin_pass();
      for (const std::string& name : names_) {
        columns_.emplace_back(name, kinds_, values_, options_);
        if (name.empty() || (name == row_name_ && options_.skips_others && !is_declared(name)))
          columns_.back().stage = Stage::skipped;
      }
      has_quoted_missing_.assign(names_.size(), false);
      reserve_rows();
      take_rows();
    } while (broken_.begin_pass() || has_wrong_kinds() || take_mixed_columns());
    Table table = table_of(std::move(columns_), num_rows_, broken_);
    table.row_name = row_name_;
    table.num_number_names = num_number_names_;
    table.num_unnamed = static_cast<std::size_t>(std::count(names_.begin(), names_.end(), ""));
    return table;
  }

 private:
  static CsvLayout layout_of(std::string_view text, const TableOptions& options) {
    CsvLayout layout{.delimiter = options.delimiter,
                     .comment = options.comment,
                     .has_header = options.has_header,
                     .num_skipped_lines = options.num_skipped_lines,
                     .numbers = {.decimal = options.decimal, .thousands = options.thousands}};
    if (layout.delimiter == 0)
      layout.delimiter = delimiter_of(text, layout, std::string{options.decimal, options.thousands});
    return layout;
  }

  bool is_declared(const std::string& name) const {
    for (const auto* list : {&options_.numbers, &options_.categories, &options_.known_categories})
      if (std::find(list->begin(), list->end(), name) != list->end()) return true;
    return false;
  }

  void take_header() {
    if (!fields_.begin_row())
      throw DataError({.place = fields_.place(),
                       .found = "the table is empty",
                       .wanted = "a header row with the names of the columns"});
    while (!fields_.is_row_done()) {
      const CsvField field = fields_.take();
      if (names_.size() == kMaxTableColumns) throw DataError(too_many_columns(fields_.row_text()));
      if (!options_.has_header) {
        names_.push_back("c" + std::to_string(names_.size() + 1));
        continue;
      }
      if (!is_utf8(field.text)) throw DataError(not_utf8(fields_.where()));
      names_.emplace_back(field.text);
    }
    if (options_.has_header) check_names();
    rename_columns();
    require_distinct_names();
    if (options_.has_header) refuse_longer_rows();
  }

  // Goes to the first row.
  void begin_rows() {
    fields_ = CsvFields(text_, layout_, fields_.place());
    fields_.set_names(names_);
    broken_.rewind();
    if (!options_.has_header) return;
    fields_.begin_row();
    while (!fields_.is_row_done()) fields_.take();
  }

  void check_names() {
    const std::string place = fields_.row_text();
    const auto num_numbers = static_cast<std::size_t>(std::count_if(
        names_.begin(), names_.end(), [](const auto& name) { return csv_number(name).has_value(); }));
    if (num_numbers == names_.size())
      throw DataError({.place = place,
                       .found = "the first row contains numbers only",
                       .wanted = "a header row with the names of the columns",
                       .remedy =
                           "set data.header = false if the file has none, or insert a first line such as "
                           "x,y,price"});
    if (names_.size() == 1 && names_[0].find_first_of(";\t,|") != std::string::npos)
      throw DataError({.place = place,
                       .found = "one column, " + quoted_text(names_[0]),
                       .wanted = "fields separated by " + quoted_text({&layout_.delimiter, 1}),
                       .remedy = "set data.delimiter to that of the file, or data.skip_rows to the number of "
                                 "lines before the header"});
    name_unnamed();
    num_number_names_ = num_numbers;
  }

  void rename_columns() {
    if (options_.renamed.empty()) return;
    if (!options_.skips_others) require_renamed_columns(options_, names_, fields_.place());
    for (std::string& name : names_) name = renamed(name, options_);
    row_name_ = renamed(row_name_, options_);
  }

  void require_distinct_names() const {
    std::vector<std::string_view> sorted(names_.begin(), names_.end());
    std::erase(sorted, "");
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice != sorted.end())
      throw DataError({.place = fields_.row_text(),
                       .found = "two columns have the name '" + one_line(*twice) + "'",
                       .wanted = "distinct names",
                       .remedy = "rename one of them"});
  }

  void name_unnamed() {
    const auto unnamed = static_cast<std::size_t>(std::count(names_.begin(), names_.end(), ""));
    if (unnamed == 0) return;
    if (unnamed == names_.size())
      throw DataError({.place = fields_.row_text(),
                       .found = "no column has a name",
                       .wanted = "a header row with the names of the columns"});
    constexpr const char* kName = "row";
    const bool is_taken = std::find(names_.begin(), names_.end(), kName) != names_.end();
    if (is_taken || (!names_.front().empty() && unnamed > 1)) return;
    *std::find(names_.begin(), names_.end(), "") = row_name_ = kName;
  }

  // What the first row shows about all of them: the names of rows, or a delimiter at the end.
  void refuse_longer_rows() {
    CsvFields fields(text_, layout_, fields_.place());
    std::vector<std::string> first;
    try {
      fields.begin_row();
      while (!fields.is_row_done()) fields.take();
      if (!fields.begin_row()) return;
      while (!fields.is_row_done()) first.emplace_back(fields.take().text);
    } catch (const RowError&) {
      return;  // reported when the rows are read
    }
    if (first.size() != names_.size() + 1 || options_.skips_broken) return;
    const bool ends_with_delimiter = first.back().empty();
    throw DataError(
        {.place = fields.row_text(),
         .found = ends_with_delimiter
                      ? "the row ends with a delimiter, and the header does not"
                      : "the row has one field more than the header, as R's write.table writes "
                        "names of rows",
         .wanted = counted(names_.size(), "field") + ", as in the header",
         .remedy = ends_with_delimiter
                       ? "add a delimiter at the end of the header, or remove those of the rows"
                       : "add a first name to the header, or write the table with col.names = NA"});
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
          if (wrong_ != nullptr) wrong_->add_row(error.parts());
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
        add_number(state, number);
      } else {
        take_other(i);
      }
    }
    ++num_rows_;
  }

  void add_number(ColumnState& state, double number) const {
    if (state.values->is_marked_missing(number)) number = kMissing;
    if (!std::isnan(number)) ++state.num_numbers;
    state.column.numbers.push_back(number);
  }

  bool has_wrong_kinds() {
    for (ColumnState& state : columns_)
      if (state.stage == Stage::categories && !state.is_declared) count_categories(state);
    const std::vector<std::string> names = wrong_kinds(columns_, options_);
    for (const std::string& name : names) kinds_.emplace(name, DeclaredKind{});
    return !names.empty();
  }

  // Counts a field that occurs several times. Numbers with a mistake, such as 1,5, are meant as numbers.
  void count_field(ColumnState& state, std::string_view text, std::size_t times) const {
    if (state.values->is_missing(text)) return;
    (state.values->is_meant_as_number(text) ? state.num_numbers : state.num_texts) += times;
  }

  void count_categories(ColumnState& state) const {
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
    const bool is_missing = state.values->is_missing(field.text);
    if (is_missing && field.is_quoted) has_quoted_missing_[i] = true;
    const std::optional<double> number = is_missing ? kMissing : state.values->number(field.text);
    if (number) {
      add_number(state, *number);
      return;
    }
    // If it is certain that none of the fields so far is a category, the others are taken at once.
    const bool is_mixed = state.num_numbers > 0 || has_quoted_missing_[i];
    const ErrorParts error{.place = fields_.where(),
                           .found = quoted_text(field.text),
                           .wanted = state.values->wanted_for(field.text),
                           .remedy = state.values->hint_for(field.text)};
    if (wrong_ != nullptr && state.is_declared) {
      wrong_->add_value(state.column.name, error);
      return add_number(state, kMissing);
    }
    state.leave_numbers(error, is_mixed);
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
    // Quoted text is a category, such as "NA", unless it is a mark that is listed.
    const bool is_missing =
        field.is_quoted ? state.values->is_marked_missing(field.text) : state.values->is_missing(field.text);
    if (is_missing && !is_empty_category) return -1;
    if (const std::int32_t code = state.index.find(field.text); code >= 0) return code;
    if (!is_utf8(field.text)) throw RowError(not_utf8(fields_.where()));
    return state.code_of(field.text, [&] { return fields_.where(); });
  }

  std::string_view text_;
  const TableOptions& options_;
  WrongValues* const wrong_;
  const ValuesOfColumns values_;
  const CsvLayout layout_;
  CsvFields fields_;
  std::vector<std::string> names_;  // empty: the column is left out
  std::string row_name_;            // Table::row_name
  std::size_t num_number_names_ = 0;
  DeclaredKinds kinds_;  // among them columns of numbers that contain other values
  std::vector<ColumnState> columns_;
  std::vector<bool> has_quoted_missing_;  // of columns: "" or "NA", which may be a category
  std::size_t num_rows_ = 0;
  BrokenRows broken_;
};

void check_options(const TableOptions& options) {
  if (options.delimiter != 0 && std::string_view(",;\t| ").find(options.delimiter) == std::string_view::npos)
    throw DataError({.place = "TableOptions::delimiter",
                     .found = quoted_text({&options.delimiter, 1}),
                     .wanted = "a comma, semicolon, tab, | or blank"});
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
  return parse_table(text, place, options, nullptr);
}

Table parse_table(std::string_view text, const std::string& place, const TableOptions& options,
                  WrongValues* wrong) {
  check_options(options);
  refuse_utf16(text, place, "save it again as \"CSV UTF-8\"");
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  return TableParser(text, place, options, wrong).parse();
}

}  // namespace kindling
