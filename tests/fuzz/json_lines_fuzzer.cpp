#include <algorithm>
#include <string>
#include <vector>

#include "kindling/base/error.h"
#include "table_check.h"

namespace {

// The lines of the rows that have not been skipped.
std::string without_rows(std::string_view text, const std::vector<kindling::BrokenRow>& skipped) {
  std::string kept;
  std::size_t row = 0;
  auto next = skipped.begin();
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // as the reader does
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (++row, next != skipped.end() && next->row == row)
      ++next;
    else
      kept.append(line).push_back('\n');
  }
  return kept;
}

// Ends the process unless both have the same columns, and the second one skips nothing.
void check_same(const kindling::Table& table, const kindling::Table& other) {
  if (!other.skipped.empty() || other.num_rows != table.num_rows) std::abort();
  if (other.columns.size() != table.columns.size()) std::abort();
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const kindling::TableColumn &a = table.columns[i], &b = other.columns[i];
    if (a.name != b.name || a.kind != b.kind || a.codes != b.codes || a.categories != b.categories)
      std::abort();
    for (std::size_t row = 0; row < a.numbers.size(); ++row)
      if (a.numbers[row] != b.numbers[row] && !(std::isnan(a.numbers[row]) && std::isnan(b.numbers[row])))
        std::abort();
  }
}

}  // namespace

// The first byte selects the options.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  kindling::TableOptions options = table_options_of(data[0]);
  options.skips_others = (data[0] & 16) != 0;
  try {
    const kindling::Table table = kindling::parse_json_lines(text, "fuzz", options);
    check_table(table);
    if (table.num_rows == 0 || table.skipped.empty()) return 0;
    check_same(table, kindling::parse_json_lines(without_rows(text, table.skipped), "fuzz", options));
  } catch (const kindling::Error&) {
    // Refused: the other good outcome.
  }
  return 0;
}
