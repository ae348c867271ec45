#include "config/raw_scan.h"

#include <algorithm>
#include <vector>

#include "base/utf8.h"
#include "config/toml_text.h"

namespace kindling::config {
namespace {

// Follows the nesting, not the grammar: text that is no TOML may be counted in any way that lets no deep key
// or value reach the parser, which recurses.
class RawScan {
 public:
  explicit RawScan(std::string_view text) : text_(text) {}

  std::optional<RawFinding> run(std::size_t max_depth) {
    for (at_ = text_.starts_with("\xEF\xBB\xBF") ? 3 : 0; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      step(c);
      if (std::max(header_ + around_ + key_dots_, value_dots_) > max_depth) {
        return RawFinding{at_, "tables, arrays and keys nest too deep"};
      }
      if (problem_ != nullptr) return RawFinding{std::min(at_, text_.size()), problem_};
      previous_ = c;
      line_start_ = c == '\n' || (line_start_ && (c == ' ' || c == '\t'));
    }
    return std::nullopt;
  }

 private:
  struct Bracket {
    bool inline_table;
    std::size_t levels;  // its own and those of the dotted key before it
  };

  void step(char c) {
    if (c == '#') skip_comment();
    if (c == '"' || c == '\'') skip_string(c);
    if (c == '\n') end_line();
    if (c == '=') in_value_ = true;
    if (c == ',') end_item();
    if (c == '.') ++(in_header_ ? header_ : in_value_ ? value_dots_ : key_dots_);
    if (c == '[' || c == '{') open(c);
    if (c == ']' || c == '}') close();
    if (static_cast<unsigned char>(c) >= 0x80) problem_ = "this character must be in quotes";
  }

  void skip_comment() {
    while (at_ + 1 < text_.size() && text_[at_ + 1] != '\n') ++at_;
  }

  // Leaves at_ on the last quote, or before the line end that an unclosed string stops at.
  void skip_string(char quote) {
    // toml++ 3.3 takes a quote in the middle of a bare value for a part of it: its strings are not these
    // then.
    const std::string_view begins_after = in_value_ ? " \t\n=[{," : " \t\n=[{,.";
    if (begins_after.find(previous_) == std::string_view::npos) problem_ = "a quote in the middle of a word";
    const std::string three(3, quote);
    const bool many_lines = text_.substr(at_, 3) == three;
    for (at_ += many_lines ? 3 : 1; at_ < text_.size(); ++at_) {
      if (quote == '"' && text_[at_] == '\\') {
        if (many_lines) check_line_end();
        ++at_;
      } else if (!many_lines && text_[at_] == '\n') {
        --at_;
        return;
      } else if (!many_lines && text_[at_] == quote) {
        return;
      } else if (many_lines && text_.substr(at_, 3) == three) {
        at_ += 2;  // up to two more quotes still belong to the string
        for (int more = 0; more < 2 && at_ + 1 < text_.size() && text_[at_ + 1] == quote; ++more) ++at_;
        return;
      }
    }
  }

  // toml++ 3.3 cannot tell whether a character that is not ASCII is white space (undefined behaviour). It
  // asks after a backslash in a string of several lines, else only where such a character is wrong anyway.
  void check_line_end() {
    const std::size_t next = text_.find_first_not_of(" \t\r\n", at_ + 1);
    if (next == std::string_view::npos || static_cast<unsigned char>(text_[next]) < 0x80) return;
    problem_ = "after a backslash the string must go on with an ASCII character";
  }

  void end_line() {
    value_dots_ = 0;
    if (!brackets_.empty()) return;
    key_dots_ = 0;
    in_value_ = false;
    in_header_ = false;
  }

  void end_item() {
    value_dots_ = 0;
    if (brackets_.empty() || !brackets_.back().inline_table) return;
    key_dots_ = 0;
    in_value_ = false;
  }

  void open(char c) {
    if (in_header_) {
      ++header_;  // [[name]]: the array and the table in it
    } else if (c == '[' && line_start_ && brackets_.empty()) {
      in_header_ = true;
      header_ = 1;
      if (!key_follows()) problem_ = "the header of a table must begin with a key";
    } else {
      brackets_.push_back({.inline_table = c == '{', .levels = key_dots_ + 1});
      around_ += brackets_.back().levels;
      key_dots_ = 0;
      value_dots_ = 0;
      in_value_ = c == '[';
    }
  }

  // toml++ 3.3 takes it for granted, by an assertion, that a key follows.
  bool key_follows() const {
    std::size_t next = text_.find_first_not_of(" \t", at_ + 1);
    if (text_.substr(std::min(next, text_.size())).starts_with('[')) {
      next = text_.find_first_not_of(" \t", next + 1);
    }
    const std::string_view first = text_.substr(std::min(next, text_.size()), 1);
    return first == "\"" || first == "'" || (!first.empty() && toml_key(first) == first);
  }

  void close() {
    if (in_header_ || brackets_.empty()) {
      in_header_ = false;
      return;
    }
    around_ -= brackets_.back().levels;
    key_dots_ = brackets_.back().levels - 1;
    in_value_ = true;
    brackets_.pop_back();
  }

  std::string_view text_;
  std::size_t at_ = 0;
  char previous_ = '\n';
  bool line_start_ = true;
  bool in_header_ = false;
  const char* problem_ = nullptr;
  bool in_value_ = false;
  std::vector<Bracket> brackets_;
  std::size_t header_ = 0;      // levels of the last [header]
  std::size_t around_ = 0;      // levels of all open brackets
  std::size_t key_dots_ = 0;    // levels of the key being read, or of the value's
  std::size_t value_dots_ = 0;  // a value has one at most, unless it is no value
};

}  // namespace

std::optional<RawFinding> find_forbidden_byte(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = first_character(text.substr(at)).bytes;
    const auto first = static_cast<unsigned char>(text[at]);
    const bool line_end = first == '\n' || text.substr(at, 2) == "\r\n";
    if (bytes == 0) return RawFinding{at, "the text is no UTF-8"};
    if (first == 0x7F || (first < 0x20 && first != '\t' && !line_end)) {
      return RawFinding{at, "TOML does not allow this control character"};
    }
    at += bytes;
  }
  return std::nullopt;
}

std::optional<RawFinding> find_unparsable(std::string_view text, std::size_t max_depth) {
  return RawScan(text).run(max_depth);
}

}  // namespace kindling::config
