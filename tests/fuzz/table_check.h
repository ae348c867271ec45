#pragma once

#include <cmath>
#include <cstdlib>
#include <string_view>

#include "kindling/formats/table.h"

// Ends the process unless the columns have a value per row and codes that are indices.
inline void check_table(const kindling::Table& table) {
  if (table.num_rows > 0 && table.row_number(table.num_rows - 1) > table.num_rows + table.skipped.size())
    std::abort();
  for (const kindling::TableColumn& column : table.columns) {
    const bool is_number = column.kind == kindling::ColumnKind::number;
    if ((is_number ? column.numbers.size() : column.codes.size()) != table.num_rows) std::abort();
    for (const double number : column.numbers) {
      if (std::isinf(number)) std::abort();
    }
    for (const std::int32_t code : column.codes) {
      if (code < -1 || code >= static_cast<std::int32_t>(column.categories.size())) std::abort();
    }
  }
}

// Returns the options that the first byte of a fuzzer's input selects.
inline kindling::TableOptions table_options_of(std::uint8_t byte) {
  kindling::TableOptions options{.delimiter = ",;\t|"[byte % 4]};
  if ((byte & 4) != 0) options.categories = {"a"};
  if ((byte & 8) != 0) options.numbers = {"b"};
  options.skips_broken = (byte & 64) != 0;
  return options;
}
