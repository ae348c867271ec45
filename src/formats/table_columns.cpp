#include "formats/table_columns.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <numeric>

#include "kindling/base/suggest.h"
#include "kindling/base/text.h"

namespace kindling {

void sort_categories(const CategoryIndex& index, TableColumn& column) {
  const std::vector<std::string>& names = index.names();
  std::vector<std::int32_t> order(names.size()), sorted(names.size());
  std::iota(order.begin(), order.end(), 0);
  const auto name_of = [&](std::int32_t code) -> const std::string& {
    return names[static_cast<std::size_t>(code)];
  };
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return name_of(a) < name_of(b); });
  for (const std::int32_t code : order) {
    sorted[static_cast<std::size_t>(code)] = static_cast<std::int32_t>(column.categories.size());
    column.categories.push_back(name_of(code));
  }
  for (std::int32_t& code : column.codes) code = code < 0 ? code : sorted[static_cast<std::size_t>(code)];
}

bool BrokenRows::begin_pass() {
  at_ = 0;
  if (found_.empty()) return false;
  const auto middle = static_cast<std::ptrdiff_t>(known_.size());
  known_.insert(known_.end(), std::make_move_iterator(found_.begin()), std::make_move_iterator(found_.end()));
  std::inplace_merge(known_.begin(), known_.begin() + middle, known_.end(),
                     [](const BrokenRow& a, const BrokenRow& b) { return a.row < b.row; });
  found_.clear();
  return true;
}

std::string quoted_text(std::string_view text) { return "\"" + shortened(one_line(text), 40) + "\""; }

void refuse_utf16(std::string_view text, const std::string& place, const std::string& remedy) {
  if (!text.starts_with("\xff\xfe") && !text.starts_with("\xfe\xff")) return;
  throw DataError(
      {.place = place, .found = "the file is UTF-16", .wanted = "a file in UTF-8", .remedy = remedy});
}

ErrorParts not_utf8(const std::string& place) {
  return {.place = place,
          .found = "the text is not UTF-8",
          .wanted = "a file in UTF-8",
          .remedy = "convert it: iconv -f latin1 -t utf-8 OLD > NEW"};
}

ErrorParts too_many_columns(const std::string& place) {
  return {.place = place,
          .found = "more than " + std::to_string(kMaxTableColumns) + " columns",
          .wanted = "a table with samples in rows"};
}

void refuse_number_of_categories(const std::string& place) {
  throw DataError({.place = place,
                   .found = "more than " + std::to_string(kMaxCategories) + " categories",
                   .wanted = "a column of fewer",
                   .remedy = "remove the column from the table"});
}

void refuse_two_kinds(const std::string& name, const std::string& place) {
  throw DataError({.place = place,
                   .found = "the column '" + name + "' is declared as numbers and as categories",
                   .wanted = "one of them"});
}

void refuse_unknown_column(const std::string& name, const std::vector<std::string>& names,
                           const std::string& place) {
  const std::string near = nearest(name, names);
  throw DataError({.place = place,
                   .found = "no column has the name '" + name + "'",
                   .wanted = names.size() <= 20 ? "one of " + list_names(names) : "the name of a column",
                   .remedy = near.empty() ? "" : "did you mean '" + near + "'?"});
}

}  // namespace kindling
