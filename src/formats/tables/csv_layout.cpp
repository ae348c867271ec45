#include "formats/tables/csv_layout.h"

#include "formats/tables/column_kinds.h"
#include "formats/tables/csv_fields.h"

namespace kindling {
namespace {

// The fields of the first two rows; 0: no such row.
struct FieldCounts {
  std::size_t first = 0, second = 0;
};

FieldCounts count_fields(std::string_view text, CsvLayout layout, char delimiter) try {
  layout.delimiter = delimiter;
  CsvFields fields(text, layout, "");
  FieldCounts counts;
  for (std::size_t* count : {&counts.first, &counts.second}) {
    if (!fields.begin_row()) break;
    for (; !fields.is_row_done(); ++*count) fields.take();
  }
  return counts;
} catch (const RowError&) {
  return {};
}

}  // namespace

char delimiter_of(std::string_view text, const CsvLayout& layout, std::string_view of_numbers) {
  char found = ',';
  std::size_t most = 1;
  bool is_sure = false;
  for (const char delimiter : {',', '\t', ';', '|'}) {
    if (of_numbers.find(delimiter) != std::string_view::npos) continue;
    const FieldCounts counts = count_fields(text, layout, delimiter);
    const bool is_equal = counts.first == counts.second || counts.second == 0;
    if (counts.first < 2 || (is_sure && !is_equal)) continue;
    if (counts.first > most || (is_equal && !is_sure)) {
      found = delimiter;
      most = counts.first;
    }
    is_sure = is_sure || is_equal;
  }
  if (is_sure) return found;
  // R's write.table omits the name of the row numbers.
  const FieldCounts blanks = count_fields(text, layout, ' ');
  const bool is_table =
      blanks.first > 1 && (blanks.second == blanks.first || (most == 1 && blanks.second == blanks.first + 1));
  return is_table ? ' ' : found;
}

}  // namespace kindling
