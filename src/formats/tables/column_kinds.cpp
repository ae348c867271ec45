#include "formats/tables/column_kinds.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <unordered_set>

#include "kindling/base/suggest.h"
#include "kindling/base/text.h"

namespace kindling {

namespace {

[[noreturn]] void refuse_unknown_column(const std::string& name, const std::vector<std::string>& names,
                                        const std::string& place) {
  const std::string near = nearest(name, names);
  throw DataError({.place = place,
                   .found = "no column has the name '" + name + "'",
                   .wanted = names.size() <= 20 ? "one of " + list_names(names) : "the name of a column",
                   .remedy = near.empty() ? "" : "did you mean '" + near + "'?"});
}

}  // namespace

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

const std::string& renamed(const std::string& name, const TableOptions& options) {
  const auto found = options.renamed.find(name);
  return found == options.renamed.end() ? name : found->second;
}

void require_renamed_columns(const TableOptions& options, const std::vector<std::string>& names,
                             const std::string& place) {
  for (const auto& [old, name] : options.renamed)
    if (std::ranges::find(names, old) == names.end()) refuse_unknown_column(old, names, place);
}

void require_columns(const TableOptions& options, const std::vector<std::string>& names,
                     const std::string& place) {
  const std::unordered_set<std::string_view> known(names.begin(), names.end());
  for (const auto* list : {&options.numbers, &options.categories, &options.known_categories})
    for (const std::string& name : *list)
      if (!known.contains(name)) refuse_unknown_column(name, names, place);
}

DeclaredKinds declared_kinds(const TableOptions& options, const std::string& place) {
  DeclaredKinds kinds;
  const auto declare = [&](const std::vector<std::string>& names, DeclaredKind kind) {
    for (const std::string& name : names)
      if (const auto [at, is_new] = kinds.emplace(name, kind); !is_new && at->second.kind != kind.kind)
        throw DataError({.place = place,
                         .found = "the column '" + name + "' is declared as numbers and as categories",
                         .wanted = "one of them"});
  };
  declare(options.numbers, {});
  declare(options.categories, {.kind = ColumnKind::category, .has_empty_category = true});
  declare(options.known_categories, {.kind = ColumnKind::category});
  return kinds;
}

ColumnState::ColumnState(std::string name, const DeclaredKinds& kinds, const ValuesOfColumns& all_values,
                         const TableOptions& options)
    : column{.name = std::move(name)}, values(&all_values.of(column.name)) {
  const auto found = kinds.find(column.name);
  is_declared = found != kinds.end();
  if (is_declared) declared = found->second;
  column.kind = declared.kind;
  if (column.kind == ColumnKind::category) stage = Stage::categories;
  if (!is_declared && options.skips_others) stage = Stage::skipped;
}

void ColumnState::leave_numbers(ErrorParts text, bool is_mixed) {
  if (is_declared) throw RowError(text);
  first_text = std::move(text);
  std::vector<double>().swap(column.numbers);
  column.kind = ColumnKind::category;
  stage = is_mixed ? Stage::mixed : Stage::categories;
}

std::vector<std::string> wrong_kinds(std::span<const ColumnState> columns, const TableOptions& options) {
  std::vector<std::string> names;
  for (const ColumnState& state : columns) {
    if (!state.first_text || state.num_numbers < state.num_texts) continue;
    if (!options.skips_broken) throw DataError(*state.first_text);
    names.push_back(state.column.name);
  }
  return names;
}

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

Table table_of(std::vector<ColumnState> columns, std::size_t num_rows, BrokenRows& broken) {
  Table table{.num_rows = num_rows, .skipped = broken.take()};
  for (ColumnState& state : columns) {
    if (state.stage == ColumnState::Stage::skipped) continue;
    if (state.column.kind == ColumnKind::category) sort_categories(state.index, state.column);
    state.index = {};
    table.columns.push_back(std::move(state.column));
  }
  return table;
}

}  // namespace kindling
