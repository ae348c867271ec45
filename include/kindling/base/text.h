#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/export.h"

// Text in the columns of a terminal. All text is UTF-8; a byte that is not counts as a character of its own.
namespace kindling {

// How many columns `text` takes: two for a wide character (Chinese, an emoji), none for a combining mark or a
// control character, else one a character.
KINDLING_API std::size_t display_width(std::string_view text);

// `text` with spaces behind it (before it, when `right`) to `width` columns; what is wider stays as it is.
KINDLING_API std::string padded(std::string_view text, std::size_t width, bool right = false);

// `text` in at most `width` columns: what is wider is cut and ends with "…".
KINDLING_API std::string shortened(std::string_view text, std::size_t width);

// Text from outside, safe to show: U+FFFD for what is no character, a space for a control character.
KINDLING_API std::string one_line(std::string_view text);

// A column of a table.
struct TextColumn {
  std::string title{};
  bool right = false;     // as for numbers
  std::size_t width = 0;  // at least
};

// One line of a table without its end: the cells padded to their columns, `gap` between them. For a table
// that grows line by line; a cell wider than its column pushes the others right.
KINDLING_API std::string table_line(std::span<const TextColumn> columns, std::span<const std::string> cells,
                                    std::string_view gap = "   ");

// A whole table: a line of titles, a line per row, each column as wide as it needs.
KINDLING_API std::string table_text(std::vector<TextColumn> columns,
                                    std::span<const std::vector<std::string>> rows,
                                    std::string_view gap = "   ");

}  // namespace kindling
