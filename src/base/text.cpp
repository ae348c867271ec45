#include "kindling/base/text.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/utf8.h"

namespace kindling {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr std::string_view kEllipsis = "…";

std::size_t columns_of(const Utf8Character& character) {
  return character.bytes == 0 ? 1 : static_cast<std::size_t>(utf8proc_charwidth(character.code));
}

// The last two codes of each plane are reserved, and XML forbids the first two of them.
bool is_no_character(const Utf8Character& character) {
  return character.bytes == 0 || (character.code & 0xFFFE) == 0xFFFE;
}

}  // namespace

Utf8Character first_character(std::string_view text) {
  utf8proc_int32_t code = -1;
  const auto bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                      static_cast<utf8proc_ssize_t>(text.size()), &code);
  return {.bytes = static_cast<std::size_t>(std::max<utf8proc_ssize_t>(bytes, 0)), .code = code};
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for_each_character(
      text, [&](const Utf8Character& character, std::string_view) { width += columns_of(character); });
  return width;
}

std::string padded(std::string_view text, std::size_t width, bool right) {
  const std::string space(width - std::min(width, display_width(text)), ' ');
  return right ? space + std::string(text) : std::string(text) + space;
}

std::string shortened(std::string_view text, std::size_t width) {
  if (display_width(text) <= width) return std::string(text);
  std::string kept;
  std::size_t used = display_width(kEllipsis);
  for_each_character(text, [&](const Utf8Character& character, std::string_view bytes) {
    used += columns_of(character);
    if (used <= width) kept += bytes;
  });
  return width == 0 ? "" : kept.append(kEllipsis);
}

std::string one_line(std::string_view text) {
  std::string line;
  for_each_character(text, [&](const Utf8Character& character, std::string_view bytes) {
    line += is_no_character(character) ? kReplacement : character.is_control() ? " " : bytes;
  });
  return line;
}

std::string table_line(std::span<const TextColumn> columns, std::span<const std::string> cells,
                       std::string_view gap) {
  std::string line;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (i > 0) line += gap;
    line += padded(cells[i], columns[i].width, columns[i].right);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string table_text(std::vector<TextColumn> columns, std::span<const std::vector<std::string>> rows,
                       std::string_view gap) {
  std::vector<std::string> titles;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    titles.push_back(columns[i].title);
    columns[i].width = std::max(columns[i].width, display_width(columns[i].title));
    for (const auto& row : rows) columns[i].width = std::max(columns[i].width, display_width(row[i]));
  }
  std::string text = table_line(columns, titles, gap) + '\n';
  for (const auto& row : rows) text += table_line(columns, row, gap) + '\n';
  return text;
}

}  // namespace kindling
