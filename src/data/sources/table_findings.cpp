#include "data/sources/table_findings.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "base/joined.h"
#include "data/sources/table_labels.h"
#include "data/transforms/number_scale.h"
#include "formats/tables/csv_number.h"
#include "formats/tables/iso_time.h"
#include "formats/tables/table_units.h"
#include "kindling/base/number_text.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

constexpr std::size_t kFewRows = 20;  // fewer show nothing
constexpr std::size_t kFewClasses = 10;

bool is_digit_of_date(char c) { return c >= '0' && c <= '9'; }

// "2026-11-29", "2026-11-29T12:00:00Z", "29.11.2026", "11/29/26"
bool is_date(std::string_view text) {
  const std::size_t num_digits =
      static_cast<std::size_t>(std::count_if(text.begin(), text.end(), is_digit_of_date));
  for (const char separator : {'-', '/', '.'}) {
    const std::size_t first = text.find(separator);
    const std::size_t second = first == std::string_view::npos ? first : text.find(separator, first + 1);
    if (second != std::string_view::npos && first > 0 && first <= 4 && second - first <= 3 &&
        num_digits >= 4 && is_digit_of_date(text.front()))
      return true;
  }
  return false;
}

// What texts that nearly all differ probably are.
std::string probable_kind(const std::vector<std::string>& values, const TableOptions& layout) {
  if (std::ranges::all_of(values, [](const auto& text) { return iso_time(text).has_value(); }))
    return "dates or times: add it to data.dates";
  if (std::ranges::all_of(values, is_date)) return "dates or times: write them as numbers, such as days";
  if (const auto unit = common_unit(values, layout))
    return "numbers with \"" + one_line(unit_text(*unit)) + "\": set data.units = true";
  const auto has_blanks = [](const std::string& value) { return std::ranges::count(value, ' ') >= 2; };
  const char* const kind =
      2 * std::ranges::count_if(values, has_blanks) > std::ssize(values) ? "sentences" : "names";
  return std::string(kind) + ": add it to data.exclude, or set it as data.id";
}

// The values of a column of numbers in the rows, without missing ones.
std::vector<double> known_numbers(const TableColumn& column, const std::vector<std::int64_t>& rows) {
  std::vector<double> values;
  for (const std::int64_t row : rows)
    if (const double value = column.numbers[static_cast<std::size_t>(row)]; !std::isnan(value))
      values.push_back(value);
  return values;
}

// The number that programs write for a missing value, if it lies far from all other values: then it is the
// smallest or the largest one.
std::string far_mark(const std::vector<double>& values, double least, double most) {
  for (const double mark : {-999., -9999., -99999., -99., 999., 9999., 99999., 999999.}) {
    if (mark != least && mark != most) continue;
    const auto count = std::ranges::count(values, mark);
    if (count < 2 || 2 * count > std::ssize(values)) continue;
    std::vector<double> others = values;
    std::erase(others, mark);
    const auto [lower, upper] = std::ranges::minmax(others);
    const double distance = mark < 0 ? lower - mark : mark - upper;
    if (distance > 2 * (upper - lower)) return number_text(mark);
  }
  return "";
}

bool counts_rows(const TableColumn& column) {
  const std::vector<double>& values = column.numbers;
  if (values.size() < kFewRows || (values[0] != 0 && values[0] != 1)) return false;
  for (std::size_t i = 1; i < values.size(); ++i)
    if (values[i] != values[i - 1] + 1) return false;
  return true;
}

// The number of values that differ; 0 if some are not whole numbers.
std::size_t num_whole_numbers(const std::vector<double>& values) {
  if (std::ranges::any_of(values, [](double value) { return value != std::floor(value); })) return 0;
  return std::set<double>(values.begin(), values.end()).size();
}

class Findings {
 public:
  Findings(const Table& table, const std::vector<std::int64_t>& rows, const TableOptions& layout,
           const std::string& place)
      : table_(table), rows_(rows), layout_(layout), place_(place) {}

  std::vector<std::string> take() { return std::move(lines_); }

  void look_at(const TableFeature& feature) {
    const TableColumn& column = *table_.find(feature.name);
    if (rows_.size() < kFewRows) return;
    if (feature.kind == ColumnKind::category)
      look_at_categories(feature, column);
    else
      look_at_numbers(column);
  }

  void look_at_target(const std::string& name) {
    const TableColumn& column = *table_.find(name);
    if (column.kind != ColumnKind::number) return;
    const std::vector<double> values = known_numbers(column, rows_);
    if (values.size() < 2) return;
    const NumberScale scale = scale_of(values);
    if (scale.deviation == 0)
      add(name, "the value to predict is " + number_text(values[0]) + " in all training rows");
    else if (const std::size_t count = num_whole_numbers(values);
             values.size() >= kFewRows && count > 1 && count <= kFewClasses)
      add(name, "the value to predict has " + std::to_string(count) +
                    " different whole numbers; if they are classes, set data.label instead of data.target");
    if (scale.deviation > 0 && scale.needs_offset())
      add(name, "float32 rounds the values to predict coarsely, because the largest is " +
                    short_text(scale.largest, 3) + ", but their standard deviation " +
                    short_text(scale.deviation, 3) + "; subtract an offset from the column");
  }

  void look_at_label(const TableSchema& schema) {
    constexpr std::size_t kManyNumbers = 50;
    const auto is_number = [](const std::string& text) { return csv_number(text).has_value(); };
    if (schema.classes.size() > kManyNumbers && std::ranges::all_of(schema.classes, is_number))
      add(schema.label,
          std::to_string(schema.classes.size()) +
              " different numbers are classes; to predict numbers, set data.target instead of data.label");
    look_at_separator(schema);
    if (schema.classes.size() == 1)
      add(schema.label, "there is only one class, '" + one_line(schema.classes[0]) + "'");
  }

 private:
  void add(const std::string& column, const std::string& text) {
    lines_.push_back(place_ + ", column '" + one_line(column) + "': " + text);
  }

  void look_at_categories(const TableFeature& feature, const TableColumn& column) {
    std::size_t num_known = 0;
    for (const std::int64_t row : rows_)
      if (!column.is_missing(static_cast<std::size_t>(row))) ++num_known;
    const std::size_t num_distinct = feature.categories.size();
    if (num_distinct == 1 && num_known == rows_.size()) return add_constant(feature.name);
    if (num_distinct >= kFewRows && 2 * num_distinct > num_known)
      add(feature.name, std::to_string(num_distinct) + " of " + counted(num_known, "value") +
                            " differ, and each has a column of its own; they are probably " +
                            probable_kind(feature.categories, layout_));
  }

  void look_at_numbers(const TableColumn& column) {
    constexpr double kExact = 9007199254740992;  // 2^53
    const std::vector<double> values = known_numbers(column, rows_);
    if (values.empty()) return;
    const auto [least, most] = std::ranges::minmax(values);
    if (least == most && values.size() == rows_.size()) return add_constant(column.name);
    if (counts_rows(column))
      add(column.name,
          "it counts the rows; in a sorted file the model can predict from that alone: add it to "
          "data.exclude, or set it as data.id");
    if (const std::string mark = far_mark(values, least, most); !mark.empty())
      add(column.name,
          mark + " lies far from all other values; if it marks a missing value, set data.na_values = [\"" +
              mark + "\"]");
    if (std::max(std::abs(least), std::abs(most)) > kExact)
      add(column.name, "values above 2^53 lose their last digits");
  }

  // Texts with a separator of several labels are not classes.
  void look_at_separator(const TableSchema& schema) {
    const TableColumn& column = *table_.find(schema.label);
    if (column.kind == ColumnKind::number) return;
    const auto num_rows_with = [&](const std::string& separator) {
      return std::ranges::count_if(rows_, [&](std::int64_t row) {
        const std::int32_t code = column.codes[static_cast<std::size_t>(row)];
        return code >= 0 &&
               labels_in_text(column.categories[static_cast<std::size_t>(code)], separator).size() > 1;
      });
    };
    const std::string& used = schema.label_separator;
    if (!used.empty() && num_rows_with(used) == 0)
      add(schema.label, "no training row has more than one label: is data.label_separator = \"" +
                            one_line(used) + "\" right?");
    if (!used.empty() || rows_.size() < kFewRows) return;
    for (const char* const separator : {"|", ";"})
      if (2 * num_rows_with(separator) > std::ssize(rows_))
        add(schema.label, "most texts have parts with '" + std::string(separator) +
                              "' between them; if these are several labels, set data.label_separator = \"" +
                              separator + "\" and model.multi_label = true");
  }

  void add_constant(const std::string& name) { add(name, "all training rows have the same value"); }

  const Table& table_;
  const std::vector<std::int64_t>& rows_;
  const TableOptions& layout_;
  const std::string& place_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> findings_in(const Table& table, const TableSchema& schema,
                                     const std::vector<std::int64_t>& rows, const TableOptions& layout,
                                     const std::string& place) {
  Findings findings(table, rows, layout, place);
  for (const TableFeature& feature : schema.features) findings.look_at(feature);
  for (const std::string& target : schema.targets) findings.look_at_target(target);
  if (!schema.label.empty()) findings.look_at_label(schema);
  return findings.take();
}

}  // namespace kindling
