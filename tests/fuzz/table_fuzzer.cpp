#include <cmath>
#include <cstdlib>

#include "kindling/base/error.h"
#include "kindling/formats/table.h"

namespace {

// Ends the process unless the columns have a value per row and codes that are indices.
void check(const kindling::Table& table) {
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

}  // namespace

// The first byte selects the options.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  kindling::TableOptions options{.delimiter = ",;\t|"[data[0] % 4]};
  if ((data[0] & 4) != 0) options.categories = {"a"};
  if ((data[0] & 8) != 0) options.numbers = {"b"};
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  try {
    check(kindling::parse_table(text, "fuzz", options));
  } catch (const kindling::Error&) {
    // Refused: the other good outcome.
  }
  return 0;
}
