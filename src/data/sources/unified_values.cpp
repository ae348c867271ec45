#include "data/sources/unified_values.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace kindling {
namespace {

std::string_view boolean_of(std::string_view text) {
  if (text == "true" || text == "True" || text == "TRUE") return "true";
  return text == "false" || text == "False" || text == "FALSE" ? "false" : "";
}

bool is_boolean(std::string_view text) { return !boolean_of(text).empty(); }

// "3" of "3" and "3.0"; empty for other texts, such as the code "01".
std::string_view integer_of(std::string_view text) {
  const std::string_view whole = text.ends_with(".0") ? text.substr(0, text.size() - 2) : text,
                         digits = whole.starts_with('-') ? whole.substr(1) : whole;
  const bool is_number = !digits.empty() && (digits.front() != '0' || whole == "0") &&
                         std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
  return is_number ? whole : std::string_view{};
}

bool has_integer(std::string_view text) { return !integer_of(text).empty(); }

// An empty text, of a row without an id, has no meaning of its own.
template <class Is>
bool all_are(const std::vector<std::string>& texts, const Is& is) {
  const auto is_empty = [](const std::string& text) { return text.empty(); };
  return !std::ranges::all_of(texts, is_empty) &&
         std::ranges::all_of(texts, [&](const std::string& text) { return text.empty() || is(text); });
}

// `texts`: one per category; equal ones become one category.
void replace_categories(std::vector<std::string> texts, TableColumn& column) {
  std::vector<std::string> sorted = texts;
  std::ranges::sort(sorted);
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  for (std::int32_t& code : column.codes)
    if (code >= 0)
      code = static_cast<std::int32_t>(
          std::ranges::lower_bound(sorted, texts[static_cast<std::size_t>(code)]) - sorted.begin());
  column.categories = std::move(sorted);
}

}  // namespace

std::vector<std::string> unified_texts(std::vector<std::string> texts) {
  const bool has_booleans = all_are(texts, is_boolean);
  if (!has_booleans && !all_are(texts, has_integer)) return texts;
  for (std::string& text : texts)
    if (!text.empty()) text = std::string(has_booleans ? boolean_of(text) : integer_of(text));
  return texts;
}

void unify_values(TableColumn& column) {
  std::vector<std::string> texts = unified_texts(column.categories);
  if (texts != column.categories) replace_categories(std::move(texts), column);
}

TableSchema with_texts_of(const TableSchema& now, TableSchema saved) {
  if (saved.unifies_values) return saved;
  const auto take = [](const std::vector<std::string>& texts, std::vector<std::string>& former) {
    if (unified_texts(former) == texts) former = texts;
  };
  take(now.classes, saved.classes);
  for (std::size_t i = 0; i < std::min(now.features.size(), saved.features.size()); ++i)
    if (!now.features[i].is_declared) take(now.features[i].categories, saved.features[i].categories);
  return saved;
}

void store_unified(const TableColumn& column, TableSchema& schema) {
  if (column.kind != ColumnKind::category) return;
  if (all_are(column.categories, is_boolean)) schema.booleans.push_back(column.name);
  if (all_are(column.categories, has_integer)) schema.integers.push_back(column.name);
}

void unify_by(const TableSchema& schema, TableColumn& column) {
  const auto unify = [&](const std::vector<std::string>& names, const auto& unified) {
    if (column.kind != ColumnKind::category || std::ranges::find(names, column.name) == names.end()) return;
    std::vector<std::string> texts = column.categories;
    for (std::string& text : texts)
      if (const std::string_view meaning = unified(text); !meaning.empty()) text = std::string(meaning);
    if (texts != column.categories) replace_categories(std::move(texts), column);
  };
  unify(schema.booleans, boolean_of);
  unify(schema.integers, integer_of);
}

}  // namespace kindling
