#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/joined.h"
#include "base/utf8.h"
#include "formats/tables/column_kinds.h"
#include "formats/tables/csv_number.h"
#include "formats/tables/table_values.h"
#include "formats/tables/wrong_values.h"
#include "kindling/base/error.h"
#include "kindling/base/text.h"
#include "kindling/formats/table.h"

namespace kindling {
namespace {

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
constexpr const char* kJsonObject = R"(an object per line, such as {"rooms": 3, "city": "Bern"})";
constexpr const char* kWriteJsonLines =
    "write each object on one line (pandas: orient=\"records\", lines=True)";

// Receives the parts of each line from the parser of JSON. Its functions have the parser's names.
class JsonLinesParser {
  using Stage = ColumnState::Stage;

 public:
  JsonLinesParser(std::string_view text, const std::string& place, const DeclaredKinds& declared,
                  const TableOptions& options, BrokenRows& broken, WrongValues* wrong)
      : text_(text),
        place_(place),
        declared_(declared),
        options_(options),
        values_(options, place),
        broken_(broken),
        wrong_(wrong) {
    if (wrong_ != nullptr) wrong_->begin_pass();
  }

  void take_lines() {
    for (std::string_view rest = text_; !rest.empty();) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      ++line_;
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      ++line_row_;
      if (broken_.contains(line_row_)) continue;
      ++row_;
      try_line(line);
    }
    if (line_row_ == 0)
      throw DataError({.place = place_, .found = "the table is empty", .wanted = kJsonObject});
    check_num_values();  // lines without values are rows, too
  }

  // A column's values end with the last row that has one.
  const std::vector<ColumnState>& columns() const { return columns_; }
  std::size_t num_rows() const { return row_; }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const ColumnState& state : columns_) names.push_back(state.column.name);
    return names;
  }

  // Declares the mixed columns as categories. Returns false if there are none.
  bool declare_mixed(DeclaredKinds& kinds) const {
    const std::size_t num_before = kinds.size();
    for (const ColumnState& state : columns_)
      if (state.stage == Stage::mixed) kinds[state.column.name].kind = ColumnKind::category;
    return kinds.size() > num_before;
  }

  Table table() {
    for (ColumnState& state : columns_)
      if (state.stage != Stage::skipped) pad(state, row_);
    return table_of(std::move(columns_), row_, broken_);
  }

  // --- What the parser of JSON calls ---

  bool null() {
    return take_value("null", [](ColumnState&) {});
  }
  bool boolean(bool value) {
    const char* const text = value ? "true" : "false";
    return take_value(text, [&](ColumnState& state) { take_text(state, text, text); });
  }
  bool number_integer(std::int64_t value) {
    return take_number(static_cast<double>(value), [&] { return std::to_string(value); });
  }
  bool number_unsigned(std::uint64_t value) {
    return take_number(static_cast<double>(value), [&] { return std::to_string(value); });
  }
  bool number_float(double value, const std::string& text) {
    return take_number(value, [&] { return text; });
  }
  bool string(const std::string& text) {
    return take_value("a text", [&](ColumnState& state) {
      if (!state.values->is_marked_missing(text)) take_text(state, text, quoted_text(text));
    });
  }
  bool binary(nlohmann::json::binary_t&) { return false; }  // JSON has none
  bool start_object(std::size_t) {
    if (has_key_) refuse_nested("an object");
    is_in_object_ = true;
    next_ = 0;
    return true;
  }
  bool end_object() {
    is_in_object_ = false;
    return true;
  }
  bool start_array(std::size_t) {
    if (has_key_) refuse_nested("an array");
    refuse_line("an array");
  }
  bool end_array() { return true; }
  bool key(const std::string& name) {
    at_ = find_or_add(options_.renamed.empty() ? name : renamed(name, options_));
    has_key_ = true;
    if (!options_.renamed.empty()) refuse_second_name(name);
    if (last_rows_[at_] == row_)
      throw RowError({.place = where(), .found = "the line has this key twice", .wanted = "distinct keys"});
    last_rows_[at_] = row_;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) {
    constexpr int kOutOfRange = 406;
    if (error.id == kOutOfRange)
      throw RowError({.place = where(),
                      .found = "a number that is too large for a double",
                      .wanted = "a finite number",
                      .remedy = "replace the value, or write null if it is missing"});
    const std::string_view rest =
        position == 0 ? "" : line_text_.substr(std::min(position - 1, line_text_.size()));
    if (!is_utf8(line_text_)) throw RowError(not_utf8(where()));
    const bool is_not_finite = rest.starts_with("NaN") || rest.starts_with("Infinity");
    throw RowError({.place = where(),
                    .found = rest.find_first_not_of(" \t\r") == std::string_view::npos
                                 ? "the line ends inside its object"
                                 : "the line is not valid JSON at byte " + std::to_string(position),
                    .wanted = kJsonObject,
                    .remedy = is_not_finite ? "write null for a missing value" : kWriteJsonLines});
  }

 private:
  // The parser takes a zero byte for the end of its input.
  void take_line(std::string_view line) {
    line_text_ = line;
    is_in_object_ = has_key_ = false;
    if (const std::size_t zero = line.find('\0'); zero != std::string_view::npos)
      throw RowError({.place = row_text(),
                      .found = "byte " + std::to_string(zero + 1) + " of the line is 0",
                      .wanted = kJsonObject,
                      .remedy = "the file is damaged there: write it again"});
    nlohmann::json::sax_parse(line.begin(), line.end(), this);
  }

  void try_line(std::string_view line) {
    num_columns_before_ = columns_.size();
    try {
      take_line(line);
    } catch (const RowError& error) {
      if (!options_.skips_broken) throw;
      broken_.add(line_row_, error.what());
      if (wrong_ != nullptr) wrong_->add_row(error.parts());
      remove_new_columns();
    }
  }

  void remove_new_columns() {
    for (; columns_.size() > num_columns_before_; columns_.pop_back()) {
      by_name_.erase(columns_.back().column.name);
      keys_.erase(columns_.back().column.name);
      if (columns_.back().stage != Stage::skipped) --num_stored_;
    }
    last_rows_.resize(num_columns_before_);
  }

  // Too many keys are an error in the line that has added some of them, else in the file.
  [[noreturn]] void refuse_keys(const ErrorParts& parts) const {
    if (columns_.size() > num_columns_before_) throw RowError(parts);
    throw DataError(parts);
  }

  std::string row_text() const {
    return place_ + ", row " + std::to_string(line_row_) + " (line " + std::to_string(line_) + ")";
  }
  std::string where() const {
    return has_key_ ? row_text() + ", column '" + one_line(columns_[at_].column.name) + "'" : row_text();
  }

  [[noreturn]] void refuse_line(const std::string& found) const {
    throw RowError({.place = row_text(), .found = found, .wanted = kJsonObject, .remedy = kWriteJsonLines});
  }
  [[noreturn]] void refuse_nested(const std::string& found) const {
    throw RowError({.place = where(),
                    .found = found,
                    .wanted = "a number, a text, true, false, or null",
                    .remedy = "write its values under separate keys, or remove the key"});
  }

  // A file has the old name of a column or the new one.
  void refuse_second_name(const std::string& key) {
    const auto [known, is_new] = keys_.emplace(columns_[at_].column.name, key);
    if (known->second == key) return;
    throw RowError({.place = where(),
                    .found = "the file also has the key '" + one_line(known->second) +
                             "' for this column, see data.rename",
                    .wanted = "one key for each column"});
  }

  // The keys of a line usually have the order of those before.
  std::size_t find_or_add(const std::string& name) {
    if (next_ < columns_.size() && columns_[next_].column.name == name) return next_++;
    const auto found = by_name_.find(name);
    const std::size_t at = found == by_name_.end() ? add_column(name) : found->second;
    next_ = at + 1;
    return at;
  }

  std::size_t add_column(const std::string& name) {
    if (name.empty())
      throw RowError({.place = row_text(), .found = "a key is empty", .wanted = "keys with a name"});
    if (columns_.size() == kMaxTableColumns) refuse_keys(too_many_columns(row_text()));
    columns_.emplace_back(name, declared_, values_, options_);
    last_rows_.push_back(0);
    if (columns_.back().stage != Stage::skipped) ++num_stored_;
    return by_name_[name] = columns_.size() - 1;
  }

  // A key that few lines have costs memory in all of them.
  void check_num_values() const {
    constexpr std::size_t kValuesOfAnyFile = std::size_t{1} << 22;
    if (row_ <= std::max(kValuesOfAnyFile, 4 * text_.size()) / std::max<std::size_t>(num_stored_, 1)) return;
    refuse_keys({.place = row_text(),
                 .found = "until here, the lines have " + std::to_string(num_stored_) +
                          " different keys, and almost all values are missing",
                 .wanted = "lines with the same keys",
                 .remedy = "write names that vary as texts under one key, not as keys"});
  }

  template <class Take>
  bool take_value(const char* kind, Take&& take) {
    if (!is_in_object_) refuse_line(kind);
    ColumnState& state = columns_[at_];
    if (state.stage != Stage::skipped) {
      check_num_values();
      take(state);
    }
    has_key_ = false;
    return true;
  }

  template <class TextOf>
  bool take_number(double number, TextOf&& text_of) {
    return take_value("a number", [&](ColumnState& state) {
      if (state.values->is_marked_missing(number)) return;
      ++state.num_numbers;
      if (state.stage == Stage::numbers) {
        pad(state, row_ - 1);
        state.column.numbers.push_back(number);
      } else if (state.stage == Stage::categories) {
        add_category(state, text_of());
      }
    });
  }

  void take_text(ColumnState& state, const std::string& text, const std::string& found) {
    ++state.num_texts;
    if (state.stage == Stage::numbers) leave_numbers(state, text, found);
    if (state.stage == Stage::categories) add_category(state, text);
  }

  void leave_numbers(ColumnState& state, const std::string& text, const std::string& found) {
    const bool is_bool = found == text;
    const ErrorParts error{.place = where(),
                           .found = found,
                           .wanted = "a number",
                           .remedy = csv_number(text) ? "write the number without quotes"
                                     : is_bool        ? "write 1 or 0"
                                     : state.values->is_meant_as_number(text)
                                         ? "write a number without quotes, with a decimal point"
                                         : state.values->hint_for(text)};
    if (wrong_ != nullptr && state.is_declared)
      wrong_->add_value(state.column.name, error);
    else
      state.leave_numbers(error, state.num_numbers > 0);
  }

  void add_category(ColumnState& state, const std::string& text) {
    pad(state, row_ - 1);
    state.column.codes.push_back(state.code_of(text, [&] { return where(); }));
  }

  // Lines of a key that has a value only later, or none at all, have missing values.
  static void pad(ColumnState& state, std::size_t num_rows) {
    if (state.column.kind == ColumnKind::number)
      state.column.numbers.resize(num_rows, kNoNumber);
    else
      state.column.codes.resize(num_rows, -1);
  }

  const std::string_view text_;
  const std::string& place_;
  const DeclaredKinds& declared_;
  const TableOptions& options_;
  const ValuesOfColumns values_;
  BrokenRows& broken_;
  WrongValues* const wrong_;
  std::vector<ColumnState> columns_;
  std::vector<std::size_t> last_rows_;  // of columns: the last row that has the key
  std::unordered_map<std::string, std::size_t> by_name_;
  std::unordered_map<std::string, std::string> keys_;  // of renamed columns: the key in the file
  std::size_t row_ = 0, line_row_ = 0, line_ = 0;  // counted from 1; the rows without and with skipped ones
  std::size_t num_stored_ = 0;                     // columns that are not skipped
  std::size_t num_columns_before_ = 0;             // the line that is read
  // In the line that is read:
  std::string_view line_text_;
  bool is_in_object_ = false, has_key_ = false;
  std::size_t at_ = 0, next_ = 0;  // the column of the key, and the one that is expected next
};

// `names`: those of the table.
void require_renamed_keys(const TableOptions& options, std::vector<std::string> names,
                          const std::string& place) {
  for (const auto& [old, name] : options.renamed)
    if (const auto found = std::ranges::find(names, name); found != names.end()) *found = old;
  require_renamed_columns(options, names, place);
}

}  // namespace

Table parse_json_lines(std::string_view text, const std::string& place, const TableOptions& options) {
  return parse_json_lines(text, place, options, nullptr);
}

Table parse_json_lines(std::string_view text, const std::string& place, const TableOptions& options,
                       WrongValues* wrong) {
  refuse_utf16(text, place, "save it again as UTF-8");
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  DeclaredKinds kinds = declared_kinds(options, place);
  BrokenRows broken;
  for (;;) {
    JsonLinesParser parser(text, place, kinds, options, broken, wrong);
    parser.take_lines();
    if (broken.begin_pass()) continue;
    if (!options.skips_others && parser.num_rows() > 0) require_renamed_keys(options, parser.names(), place);
    if (!options.skips_others && parser.num_rows() > 0) require_columns(options, parser.names(), place);
    // Without the broken rows of some columns, others may not be mixed.
    const std::vector<std::string> wrong = wrong_kinds(parser.columns(), options);
    for (const std::string& name : wrong) kinds.emplace(name, DeclaredKind{});
    if (wrong.empty() && !parser.declare_mixed(kinds)) return parser.table();
  }
}

}  // namespace kindling
