#include "formats/tables/chosen_columns.h"

#include <cmath>
#include <utility>
#include <vector>

#include "formats/tables/column_kinds.h"
#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

// A number as a category, as "5" or "0.25".
void make_categories(TableColumn& column) {
  CategoryIndex index;
  for (const double number : column.numbers)
    column.codes.push_back(std::isnan(number) ? -1 : index.add(number_text(number)));
  column.numbers.clear();
  column.kind = ColumnKind::category;
  sort_categories(index, column);
}

}  // namespace

Table with_chosen_columns(const Table& table, const TableOptions& options, const std::string& place) {
  Table chosen{.num_rows = table.num_rows};
  std::vector<std::string> names, stored;
  for (const TableColumn& column : table.columns) {
    stored.push_back(column.name);
    names.push_back(renamed(column.name, options));
    if (column.name == table.row_name) chosen.row_name = names.back();
  }
  require_renamed_columns(options, stored, place);
  if (!options.skips_others) require_columns(options, names, place);
  const DeclaredKinds kinds = declared_kinds(options, place);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto declared = kinds.find(names[i]);
    if (options.skips_others && declared == kinds.end()) continue;
    TableColumn column = table.columns[i];
    column.name = names[i];
    const bool is_number = declared == kinds.end() || declared->second.kind == ColumnKind::number;
    if (declared != kinds.end() && is_number && column.kind == ColumnKind::category)
      throw DataError({.place = place + ", column '" + one_line(column.name) + "'",
                       .found = "its values are texts",
                       .wanted = "numbers"});
    if (!is_number && column.kind == ColumnKind::number) make_categories(column);
    chosen.columns.push_back(std::move(column));
  }
  if (chosen.find(chosen.row_name) == nullptr) chosen.row_name.clear();
  return chosen;
}

}  // namespace kindling
