#include "data/sources/table_labels.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <unordered_map>
#include <utility>

#include "data/sources/table_places.h"
#include "formats/tables/csv_number.h"
#include "kindling/base/number_text.h"
#include "kindling/base/suggest.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

constexpr std::int64_t kUnknownClass = -1;

[[noreturn]] void refuse_missing_label(const Table& table, std::size_t row, const std::string& name,
                                       const std::string& place) {
  throw DataError(missing_label(row_place(table, row, name, place)));
}

const TableColumn& label_column(const Table& table, const std::string& name, const std::string& place) {
  if (const TableColumn* column = table.find(name)) return *column;
  throw DataError({.place = place,
                   .found = "the column '" + one_line(name) + "' is missing",
                   .wanted = "the column that the model predicts"});
}

// Some rows of a table, or all.
class ChosenRows {
 public:
  ChosenRows(const Table& table, const std::vector<std::int64_t>* rows)
      : rows_(rows), size_(rows == nullptr ? table.num_rows : rows->size()) {}
  std::size_t size() const { return size_; }
  std::size_t operator[](std::size_t i) const {
    return rows_ == nullptr ? i : static_cast<std::size_t>((*rows_)[i]);
  }

 private:
  const std::vector<std::int64_t>* rows_;
  std::size_t size_;
};

// Returns the text of each value of a column; of numbers as number_text().
std::vector<std::string> texts_of(const Table& table, const TableColumn& column, const ChosenRows& rows,
                                  const std::string& place) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::size_t row = rows[i];
    if (column.is_missing(row)) refuse_missing_label(table, row, column.name, place);
    texts.push_back(column.kind == ColumnKind::number
                        ? number_text(column.numbers[row])
                        : column.categories[static_cast<std::size_t>(column.codes[row])]);
  }
  return texts;
}

// Finds classes by their texts. If no class has a text, finds the only one that is the same number: a file
// may write the class 1 as 1.0.
class ClassNumbers {
 public:
  explicit ClassNumbers(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      const auto index = static_cast<std::int64_t>(by_text_.size());
      by_text_[name] = index;
      if (const auto number = csv_number(name))
        if (const auto [other, is_new] = by_number_.emplace(*number, index); !is_new)
          other->second = kUnknownClass;
    }
  }
  std::int64_t find(const std::string& text) const {
    if (const auto found = by_text_.find(text); found != by_text_.end()) return found->second;
    const auto number = csv_number(text);
    const auto found = number ? by_number_.find(*number) : by_number_.end();
    return found == by_number_.end() ? kUnknownClass : found->second;
  }

 private:
  std::unordered_map<std::string, std::int64_t> by_text_{};
  std::unordered_map<double, std::int64_t> by_number_{};
};

at::Tensor targets_of(const Table& table, const TableSchema& schema, const ChosenRows& rows,
                      const std::string& place) {
  const std::size_t width = schema.targets.size();
  at::Tensor targets =
      at::empty({static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(width)}, at::kFloat);
  auto* const out = targets.mutable_data_ptr<float>();
  for (std::size_t i = 0; i < width; ++i) {
    const TableColumn& column = label_column(table, schema.targets[i], place);
    require_numbers(column, place);
    for (std::size_t at = 0; at < rows.size(); ++at) {
      const std::size_t row = rows[at];
      if (std::isnan(column.numbers[row])) refuse_missing_label(table, row, column.name, place);
      require_float32(column.numbers[row], table, row, column.name, place);
      out[at * width + i] = static_cast<float>(column.numbers[row]);
    }
  }
  return targets;
}

[[noreturn]] void refuse_class(const std::string& text, const TableSchema& schema, std::string place) {
  throw DataError({.place = std::move(place),
                   .found = "the class '" + shortened(one_line(text), 40) + "'",
                   .wanted = schema.classes.size() <= 20 ? "one of " + list_names(schema.classes)
                                                         : "a class of the training file"});
}

at::Tensor labels_of_sets(const Table& table, const TableSchema& schema, const ChosenRows& rows,
                          const std::string& place) {
  const ClassNumbers numbers(schema.classes);
  const TableColumn& column = label_column(table, schema.label, place);
  const auto width = static_cast<std::int64_t>(schema.classes.size());
  at::Tensor sets = at::zeros({static_cast<std::int64_t>(rows.size()), width}, at::kByte);
  auto* out = sets.mutable_data_ptr<std::uint8_t>();
  for (std::size_t i = 0; i < rows.size(); ++i, out += width) {
    const std::size_t row = rows[i];
    if (column.is_missing(row)) continue;
    const std::string text = column.kind == ColumnKind::number
                                 ? number_text(column.numbers[row])
                                 : column.categories[static_cast<std::size_t>(column.codes[row])];
    for (const std::string& label : labels_in_text(text, schema.label_separator)) {
      const std::int64_t number = numbers.find(label);
      if (number == kUnknownClass) refuse_class(label, schema, row_place(table, row, schema.label, place));
      out[number] = 1;
    }
  }
  return sets;
}

at::Tensor classes_of(const Table& table, const TableSchema& schema, const ChosenRows& rows,
                      const std::string& place) {
  const ClassNumbers numbers(schema.classes);
  at::Tensor classes = at::empty({static_cast<std::int64_t>(rows.size())}, at::kLong);
  auto* const out = classes.mutable_data_ptr<std::int64_t>();
  const std::vector<std::string> texts =
      texts_of(table, label_column(table, schema.label, place), rows, place);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    out[i] = numbers.find(texts[i]);
    if (out[i] == kUnknownClass)
      refuse_class(texts[i], schema, row_place(table, rows[i], schema.label, place));
  }
  return classes;
}

}  // namespace

ErrorParts missing_label(std::string place) {
  return {.place = std::move(place),
          .found = "the value to predict is missing",
          .wanted = "a value in every row",
          .remedy = "fill it in, or remove the row"};
}

void require_numbers(const TableColumn& column, const std::string& place) {
  if (column.kind == ColumnKind::number) return;
  throw DataError({.place = column_place(place, column.name),
                   .found = "the values to predict are texts",
                   .wanted = "numbers",
                   .remedy = "for classes, set data.label instead of data.target"});
}

std::vector<std::string> sorted_classes(std::vector<std::string> texts) {
  std::ranges::sort(texts);
  std::vector<std::pair<double, std::string>> numbers;
  for (const std::string& text : texts) {
    const auto number = csv_number(text);
    if (!number) return texts;
    numbers.emplace_back(*number, text);
  }
  std::sort(numbers.begin(), numbers.end());
  std::vector<std::string> names;
  for (const auto& [number, text] : numbers) names.push_back(text);
  return names;
}

std::vector<std::string> class_names_of(const TableColumn& column) {
  if (column.kind == ColumnKind::category) {
    std::vector<std::string> names;  // those of omitted rows do not occur
    const std::set<std::int32_t> codes(column.codes.begin(), column.codes.end());
    for (const std::int32_t code : codes)
      if (code >= 0) names.push_back(column.categories[static_cast<std::size_t>(code)]);
    return sorted_classes(names);
  }
  std::set<double> numbers;
  for (const double number : column.numbers)
    if (!std::isnan(number)) numbers.insert(number);
  std::vector<std::string> names;
  for (const double number : numbers) names.push_back(number_text(number));
  return names;
}

at::Tensor labels_of(const Table& table, const TableSchema& schema, const std::vector<std::int64_t>* rows,
                     const std::string& place) {
  const ChosenRows chosen(table, rows);
  if (schema.label.empty()) return targets_of(table, schema, chosen, place);
  return schema.label_separator.empty() ? classes_of(table, schema, chosen, place)
                                        : labels_of_sets(table, schema, chosen, place);
}

}  // namespace kindling
