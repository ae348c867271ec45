#include "formats/tables/csv_fields.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/joined.h"
#include "formats/tables/column_kinds.h"
#include "formats/tables/csv_number.h"
#include "kindling/base/error.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

std::string_view without_spaces(const char* begin, const char* end) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (begin != end && is_space(*begin)) ++begin;
  while (begin != end && is_space(end[-1])) --end;
  return {begin, static_cast<std::size_t>(end - begin)};
}

}  // namespace

CsvFields::CsvFields(std::string_view text, const CsvLayout& layout, std::string place)
    : at_(text.data()),
      end_(text.data() + text.size()),
      delimiter_(layout.delimiter),
      comment_(layout.comment),
      numbers_(layout.numbers),
      has_numbers_(delimiter_ != numbers_.decimal && delimiter_ != numbers_.thousands),
      place_(std::move(place)),
      has_begun_(!layout.has_header) {
  for (const char c : {delimiter_, '\n', '\r'}) ends_field_[static_cast<unsigned char>(c)] = true;
  for (std::size_t i = 0; i < layout.num_skipped_lines; ++i) skip_line();
}

std::string CsvFields::row_text() const {
  if (row_ == 0) return place_ + ", header";
  return place_ + ", row " + std::to_string(row_) + " (line " + std::to_string(row_line_) + ")";
}

std::string CsvFields::where() const {
  if (names_ != nullptr && num_taken_ > 0 && num_taken_ <= names_->size())
    return row_text() + ", column '" + one_line((*names_)[num_taken_ - 1]) + "'";
  return row_text() + ", column " + std::to_string(num_taken_);
}

bool CsvFields::begin_row() {
  require_row_done();
  skip_lines_without_fields();
  if (at_ == end_) return false;
  if (has_begun_) ++row_;
  has_begun_ = true;
  row_line_ = line_;
  row_begin_ = at_;
  num_taken_ = 0;
  is_row_done_ = has_wrong_quotes_ = false;
  return true;
}

void CsvFields::require_row_done() const {
  if (is_row_done_) return;
  throw RowError({.place = where(),
                  .found = "the row continues after this column, the last one",
                  .wanted = counted(num_taken_, "field") + ", as in the header",
                  .remedy = "quote fields that contain delimiters"});
}

void CsvFields::skip_row() {
  try {
    while (!is_row_done_ && !has_wrong_quotes_) {
      const std::size_t line = line_;
      const bool is_quoted = take().is_quoted;
      // Probably a quote that does not begin a field: what follows are other rows.
      const bool has_many_lines = is_quoted && line_ > line + (is_row_done_ ? 1 : 0);
      has_wrong_quotes_ = has_many_lines && names_ != nullptr && num_taken_ > names_->size();
    }
  } catch (const RowError&) {
  }
  is_row_done_ = true;
  if (!has_wrong_quotes_) return;
  line_ = row_line_;
  at_ = row_begin_;
  skip_line();
}

void CsvFields::skip_lines_without_fields() {
  while (at_ != end_) {
    if (delimiter_ == ' ' && *at_ == ' ')
      ++at_;
    else if (*at_ == '\n' || *at_ == '\r')
      skip_line_end();
    else if (comment_ != 0 && *at_ == comment_)
      skip_line();
    else
      return;
  }
}

void CsvFields::skip_line() {
  at_ = std::find_if(at_, end_, [](char c) { return c == '\n' || c == '\r'; });
  if (at_ != end_) skip_line_end();
}

void CsvFields::skip_line_end() {
  if (*at_ == '\r' && at_ + 1 != end_ && at_[1] == '\n') ++at_;
  ++at_;
  ++line_;
}

void CsvFields::end_field() {
  is_row_done_ = at_ == end_ || *at_ != delimiter_;
  if (!is_row_done_) {
    ++at_;
    if (delimiter_ != ' ') return;
    while (at_ != end_ && *at_ == ' ') ++at_;
    is_row_done_ = at_ == end_ || *at_ == '\n' || *at_ == '\r';
  }
  if (is_row_done_ && at_ != end_) skip_line_end();
}

CsvField CsvFields::take() {
  ++num_taken_;
  if (at_ != end_ && *at_ == '"') return take_quoted();
  const char* const begin = at_;
  const char* end = begin;
  while (end != end_ && !ends_field(*end)) ++end;
  at_ = end;
  end_field();
  return {.text = without_spaces(begin, end)};
}

bool CsvFields::take_number(double& number) {
  if (!has_numbers_) return false;
  const char* const after = take_csv_number(at_, end_, number, numbers_);
  if (after == nullptr || (after != end_ && !ends_field(*after))) return false;
  at_ = after;
  ++num_taken_;
  end_field();
  return true;
}

CsvField CsvFields::take_quoted() {
  ++at_;
  const char* begin = at_;
  unescaped_.clear();
  bool is_escaped = false;
  std::string_view text;
  has_wrong_quotes_ = true;
  for (;;) {
    const auto rest = static_cast<std::size_t>(end_ - at_);
    const auto* const quote = rest == 0 ? nullptr : static_cast<const char*>(std::memchr(at_, '"', rest));
    if (quote == nullptr)
      throw RowError({.place = where(),
                      .found = "the field's opening quote has no closing one",
                      .wanted = "\" at the end of the field",
                      .remedy = "write quotes inside a quoted field twice"});
    line_ += static_cast<std::size_t>(std::count(at_, quote, '\n'));
    at_ = quote + 1;
    text = {begin, static_cast<std::size_t>(quote - begin)};
    if (at_ == end_ || *at_ != '"') break;
    is_escaped = true;
    unescaped_.append(text).push_back('"');
    begin = ++at_;
  }
  if (is_escaped) text = unescaped_.append(text);
  while (delimiter_ != ' ' && at_ != end_ && *at_ == ' ') ++at_;
  if (at_ != end_ && !ends_field(*at_))
    throw RowError({.place = where(),
                    .found = "there is text after the field's closing quote",
                    .wanted = "a delimiter or the end of the line",
                    .remedy = "write quotes inside a quoted field twice"});
  has_wrong_quotes_ = false;
  end_field();
  return {.text = text, .is_quoted = true};
}

}  // namespace kindling
