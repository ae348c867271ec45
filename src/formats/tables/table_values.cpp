#include "formats/tables/table_values.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/joined.h"
#include "formats/tables/column_kinds.h"
#include "formats/tables/csv_number.h"
#include "kindling/base/error.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

bool is_decimal_digit(char c) { return c >= '0' && c <= '9'; }

// Returns the text without separators of thousands; "" if they do not separate groups of three digits, of
// which the first does not begin with 0: 0,101 has a decimal comma.
std::string without_thousands(std::string_view text, char separator, char decimal) {
  std::string number;
  const std::size_t whole = std::min(text.find(decimal), text.size());
  std::size_t num_digits = 0;  // since the last separator
  bool is_grouped = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == separator) {
      if (i >= whole || num_digits == 0 || num_digits > 3 || (is_grouped && num_digits < 3) ||
          text[text.find_first_of("0123456789")] == '0')
        return "";
      is_grouped = true;
      num_digits = 0;
      continue;
    }
    if (is_grouped && num_digits < 3 && !is_decimal_digit(c)) return "";
    if (i < whole && is_decimal_digit(c) && ++num_digits > 3 && is_grouped) return "";
    number += c;
  }
  return is_grouped && whole == text.size() && num_digits < 3 ? "" : number;
}

std::optional<double> number_in(std::string_view text, char thousands, char decimal) {
  std::string plain = thousands == 0 ? std::string(text) : without_thousands(text, thousands, decimal);
  if (decimal != '.') {
    if (plain.find('.') != std::string::npos) return std::nullopt;
    std::replace(plain.begin(), plain.end(), decimal, '.');
  }
  return csv_number(plain);
}

constexpr std::array<std::string_view, 6> kMissingTexts{"NA", "N/A", "NaN", "nan", "NULL", "null"};

// By which programs mark missing values.
constexpr std::array<std::string_view, 27> kUsualMarks{
    "?",   "-",   "--",      ".",       "*",     "None",  "none", "n/a",      "na",
    "Na",  "Nan", "NAN",     "-nan",    "-NaN",  "<NA>",  "#N/A", "#N/A N/A", "#NA",
    "nil", "\\N", "#VALUE!", "#DIV/0!", "#REF!", "#NUM!", "Null", "NONE",     "missing"};

template <class Texts>
bool contains(const Texts& texts, std::string_view text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

}  // namespace

TableValues::TableValues(const TableOptions& options, std::vector<std::string> marks,
                         const std::string& place)
    : marks_(std::move(marks)), thousands_(options.thousands), decimal_(options.decimal) {
  takes_usual_marks_ = contains(marks_, "auto");
  if (decimal_ != '.' && decimal_ != ',')
    throw DataError({.place = place,
                     .found = "the decimal mark " + quoted_text({&decimal_, 1}),
                     .wanted = "a point or a comma"});
  if (thousands_ != 0 && std::string_view(",. '_").find(thousands_) == std::string_view::npos)
    throw DataError({.place = place,
                     .found = "the separator of thousands " + quoted_text({&thousands_, 1}),
                     .wanted = "a comma, a point, a blank, ' or _"});
  if (thousands_ == decimal_)
    throw DataError({.place = place,
                     .found = "the decimal mark is also the separator of thousands",
                     .wanted = "different characters",
                     .remedy = "set decimal = \",\" with thousands = \".\""});
  for (const std::string& mark : marks_)
    if (const auto marked = number(mark)) marked_numbers_.push_back(*marked);
  const auto note_beginnings = [this](const auto& texts) {
    for (const std::string_view text : texts)
      if (!text.empty()) begins_mark_[static_cast<unsigned char>(text[0])] = true;
  };
  note_beginnings(kMissingTexts);
  note_beginnings(marks_);
  if (takes_usual_marks_) note_beginnings(kUsualMarks);
}

ValuesOfColumns::ValuesOfColumns(const TableOptions& options, const std::string& place)
    : all_(options, options.na_values, place) {
  for (const auto& [name, texts] : options.na_values_of) {
    std::vector<std::string> marks = options.na_values;
    marks.insert(marks.end(), texts.begin(), texts.end());
    by_name_.emplace(name, TableValues(options, std::move(marks), place));
  }
}

bool TableValues::is_missing_mark(std::string_view text) const {
  return contains(kMissingTexts, text) || is_marked_missing(text);
}

bool TableValues::is_marked_missing(std::string_view text) const {
  if (marks_.empty()) return false;
  if (text == "auto") return false;  // the keyword
  return contains(marks_, text) || (takes_usual_marks_ && contains(kUsualMarks, text));
}

std::optional<double> TableValues::number(std::string_view text) const {
  // Within quotes, as in "6.2 ".
  while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
  while (text.ends_with(' ') || text.ends_with('\t')) text.remove_suffix(1);
  return is_plain() ? csv_number(text) : number_in(text, thousands_, decimal_);
}

TableValues::Mistake TableValues::mistake_in(std::string_view text) const {
  if (text.find_first_of("0123456789iI.+-") != 0) return Mistake::text;  // most texts
  if (number(text)) return Mistake::none;
  if (is_plain() && text.find(',') != std::string_view::npos) {
    if (number_in(text, ',', '.')) return Mistake::thousands;
    return number_in(text, '.', ',') ? Mistake::comma : Mistake::text;
  }
  std::string lower = lower_case(text);
  if (lower.starts_with('+') || lower.starts_with('-')) lower.erase(0, 1);
  if (lower == "inf" || lower == "infinity") return Mistake::range;
  const std::size_t exponent = lower.find('e');
  // "1e999", whose mantissa alone is a number.
  const bool is_number = exponent != std::string::npos && csv_number(lower.substr(0, exponent)) &&
                         csv_number(lower.substr(exponent + 1));
  return is_number ? Mistake::range : Mistake::text;
}

bool TableValues::is_meant_as_number(std::string_view text) const {
  return mistake_in(text) != Mistake::text;
}

std::string TableValues::wanted_for(std::string_view text) const {
  return is_meant_as_number(text) ? "a finite number with a decimal point" : "a number";
}

std::string TableValues::hint_for(std::string_view text) const {
  switch (mistake_in(text)) {
    case Mistake::comma:
      return std::string("set data.decimal = \",\"") +
             (text.find('.') == std::string_view::npos ? "" : " and data.thousands = \".\"") +
             " if the comma is the decimal mark";
    case Mistake::thousands:
      return std::string("set data.thousands = \",\" if the comma separates thousands") +
             (number_in(text, '.', ',') ? ", or data.decimal = \",\" if it is the decimal mark" : "");
    case Mistake::range:
      return "replace the value, or leave the field empty if it is missing";
    default:
      if (!text.empty() && is_decimal_digit(text.front()))  // a code such as 207a
        return "correct it, or list the column in data.categories if its values are names";
      return "if it marks a missing value, set data.na_values = [" + quoted_text(text) +
             "]; otherwise correct it";
  }
}

}  // namespace kindling
