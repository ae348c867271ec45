#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/export.h"

// Text in terminal columns. All text is UTF-8; an invalid byte counts as one character.
namespace kindling {

// Returns how many columns `text` takes: two for a wide character (Chinese, an emoji), none for a combining
// mark or a control character, otherwise one per character.
KINDLING_API std::size_t display_width(std::string_view text);

// Returns `text` padded with spaces to `width` columns, on its right (on its left if `right`). Wider text is
// unchanged.
KINDLING_API std::string padded(std::string_view text, std::size_t width, bool right = false);

// Returns `text` in at most `width` columns: wider text is cut and ends with "…".
KINDLING_API std::string shortened(std::string_view text, std::size_t width);

// Returns untrusted text that is safe to display: U+FFFD for invalid characters, a space for control
// characters.
KINDLING_API std::string one_line(std::string_view text);

// A column of a table.
struct TextColumn {
  std::string title{};
  bool right = false;     // aligns right, as for numbers
  std::size_t width = 0;  // minimum width
};

// Returns one line of a table without a line end: the cells padded to their columns, separated by `gap`. For
// a table that grows line by line; a cell wider than its column pushes the others to the right.
KINDLING_API std::string table_line(std::span<const TextColumn> columns, std::span<const std::string> cells,
                                    std::string_view gap = "   ");

// Returns a whole table: a line of titles, a line per row, each column as wide as needed.
KINDLING_API std::string table_text(std::vector<TextColumn> columns,
                                    std::span<const std::vector<std::string>> rows,
                                    std::string_view gap = "   ");

}  // namespace kindling
