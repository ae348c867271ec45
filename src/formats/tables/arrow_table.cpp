#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "formats/tables/arrow_values.h"
#include "formats/tables/column_kinds.h"
#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/base/text.h"
#include "kindling/formats/arrow.h"

namespace kindling {
namespace {

constexpr double kMissingNumber = std::numeric_limits<double>::quiet_NaN();
constexpr const char* kIndexOfPandas = "__index_level_0__";
constexpr const char* kRowName = "row";

// A structure of the interface, which is released at the end.
template <class Structure>
struct Released {
  Structure value{};

  Released() = default;
  ~Released() {
    if (value.release != nullptr) value.release(&value);
  }
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;
};

struct ReleasedStream {
  ArrowArrayStream* stream;
  ~ReleasedStream() {
    if (stream->release != nullptr) stream->release(stream);
  }
};

class ArrowColumn {
 public:
  ArrowColumn(const ArrowSchema& schema, std::string name, const std::string& place)
      : place_(place + ", column '" + one_line(name) + "'"), is_coded_(schema.dictionary != nullptr) {
    column_.name = std::move(name);
    type_ = arrow_type(schema.format, place_);
    if (is_coded_) values_type_ = arrow_type(schema.dictionary->format, place_);
    if (is_coded_ && schema.dictionary->dictionary != nullptr)
      throw DataError({.place = place_,
                       .found = "its categories are codes of other categories",
                       .wanted = "texts or numbers"});
    const ArrowKind kind = is_coded_ ? values_type_.kind : type_.kind;
    is_number_ = kind == ArrowKind::number || kind == ArrowKind::decimal || kind == ArrowKind::null;
    column_.kind = is_number_ ? ColumnKind::number : ColumnKind::category;
  }

  void make_texts() { is_text_ = true, column_.kind = ColumnKind::category; }

  // `parent`: the batch.
  void add(const ArrowArray& array, const ArrowArray& parent) {
    const ArrowValues values(array, type_, parent.offset);
    if (is_coded_ && array.dictionary == nullptr)
      throw DataError(
          {.place = place_, .found = "a batch has no categories", .wanted = "those of its codes"});
    if (is_coded_ && !is_number_)
      codes_of_batch_.assign(static_cast<std::size_t>(array.dictionary->length), kUnknown);
    for (std::int64_t row = 0; row < parent.length; ++row) {
      const bool is_null = values.is_null(row) || is_null_in(parent, row);
      if (is_number_)
        add_number(is_null     ? kMissingNumber
                   : is_coded_ ? number_of(array, values.integer(row))
                               : values.number(row));
      else if (is_null)
        column_.codes.push_back(kNull);
      else
        column_.codes.push_back(is_coded_ ? code_of(array, values.integer(row))
                                          : index_.add(text_of(values, type_, row)));
    }
  }

  TableColumn take() && {
    if (is_text_ && is_number_) number_texts();
    if (column_.kind == ColumnKind::number) return std::move(column_);
    sort_categories(index_, column_);
    return std::move(column_);
  }

 private:
  static constexpr std::int32_t kNull = -1, kUnknown = -2;

  static bool is_null_in(const ArrowArray& parent, std::int64_t row) {
    if (parent.n_buffers == 0 || parent.buffers[0] == nullptr) return false;
    const std::int64_t at = parent.offset + row;
    return (static_cast<const unsigned char*>(parent.buffers[0])[at / 8] >> (at % 8) & 1) == 0;
  }

  std::string row_text() const {
    return place_ + ", row " + std::to_string(std::max(column_.numbers.size(), column_.codes.size()) + 1);
  }

  // float64 has no other integers: ids would become equal.
  void require_exact(double number) const {
    constexpr double kLargest = 9007199254740992;  // 2^53
    const bool is_wide = type_.kind == ArrowKind::number && (type_.code == 'l' || type_.code == 'L');
    if (is_wide && std::abs(number) >= kLargest)
      throw DataError({.place = row_text(),
                       .found = "the integer is larger than 2^53, which float64 cannot hold exactly",
                       .wanted = "smaller integers",
                       .remedy = "convert the column to text, or to float64 unless it identifies rows"});
  }

  void add_number(double number) {
    require_exact(number);
    if (std::isinf(number))
      throw DataError({.place = row_text(), .found = "the number is infinite", .wanted = "a finite number"});
    column_.numbers.push_back(number);
  }

  std::string text_of(const ArrowValues& values, const ArrowType& type, std::int64_t at) const {
    if (type.kind == ArrowKind::date && !values.has_date(at))
      throw DataError({.place = row_text(),
                       .found = "the date is infinite, or outside of the years 1 to 9999",
                       .wanted = "a date, or null"});
    return checked(values.text(at));
  }

  std::string checked(std::string text) const {
    if (!is_utf8(text)) throw DataError(not_utf8(row_text()));
    if (index_.names().size() == kMaxCategories) refuse_number_of_categories(row_text());
    return text;
  }

  std::int64_t checked_code(const ArrowArray& array, std::int64_t code) const {
    if (code >= 0 && code < array.dictionary->length) return code;
    throw DataError({.place = row_text(),
                     .found = "the code of the category is " + std::to_string(code),
                     .wanted = "codes below " + std::to_string(array.dictionary->length)});
  }

  double number_of(const ArrowArray& array, std::int64_t code) const {
    const ArrowValues values(*array.dictionary, values_type_, 0);
    code = checked_code(array, code);
    return values.is_null(code) ? kMissingNumber : values.number(code);
  }

  std::int32_t code_of(const ArrowArray& array, std::int64_t code) {
    std::int32_t& known = codes_of_batch_[static_cast<std::size_t>(checked_code(array, code))];
    if (known == kUnknown) {
      const ArrowValues values(*array.dictionary, values_type_, 0);
      known = values.is_null(code) ? kNull : index_.add(text_of(values, values_type_, code));
    }
    return known;
  }

  // Row numbers are names.
  void number_texts() {
    for (const double number : column_.numbers)
      column_.codes.push_back(std::isnan(number) ? kNull : index_.add(number_text(number)));
    column_.numbers.clear();
  }

  std::string place_;
  bool is_coded_, is_number_ = false, is_text_ = false;
  ArrowType type_{}, values_type_{};
  TableColumn column_{};
  CategoryIndex index_{};
  std::vector<std::int32_t> codes_of_batch_{};
};

[[noreturn]] void refuse_stream(ArrowArrayStream& stream, int error, const std::string& place) {
  const char* const text = stream.get_last_error == nullptr ? nullptr : stream.get_last_error(&stream);
  throw DataError({.place = place,
                   .found = "the stream fails with error " + std::to_string(error) +
                            (text == nullptr ? "" : ": " + one_line(text)),
                   .wanted = "batches of rows"});
}

// "row", or another name if a column has it.
std::string free_name(const ArrowSchema& schema) {
  const auto is_used = [&](const std::string& name) {
    for (std::int64_t i = 0; i < schema.n_children; ++i)
      if (schema.children[i]->name != nullptr && schema.children[i]->name == name) return true;
    return false;
  };
  std::string name = kRowName;
  while (is_used(name)) name += "_";
  return name;
}

std::vector<ArrowColumn> columns_of(const ArrowSchema& schema, const std::string& place,
                                    std::string& row_name) {
  if (schema.format != std::string("+s"))
    throw DataError({.place = place,
                     .found = "the Arrow type of the stream is '" + std::string(schema.format) + "'",
                     .wanted = "a table, '+s'",
                     .remedy = "export a table or a data frame, not a single column"});
  std::vector<ArrowColumn> columns;
  std::set<std::string> names;
  for (std::int64_t i = 0; i < schema.n_children; ++i) {
    const ArrowSchema& child = *schema.children[i];
    std::string name = child.name == nullptr ? "" : child.name;
    const bool is_index = name == kIndexOfPandas;
    if (is_index) row_name = name = free_name(schema);
    if (!names.insert(name).second)
      throw DataError({.place = place,
                       .found = "two columns have the name '" + one_line(name) + "'",
                       .wanted = "names that differ"});
    columns.emplace_back(child, std::move(name), place);
    if (is_index) columns.back().make_texts();
  }
  return columns;
}

}  // namespace

Table read_arrow(ArrowArrayStream* stream, const std::string& place) {
  if (stream == nullptr || stream->release == nullptr)
    throw DataError({.place = place, .found = "the stream has been released", .wanted = "a new stream"});
  const ReleasedStream released{stream};
  Table table;
  Released<ArrowSchema> schema;
  if (const int error = stream->get_schema(stream, &schema.value); error != 0)
    refuse_stream(*stream, error, place);
  std::vector<ArrowColumn> columns = columns_of(schema.value, place, table.row_name);
  while (true) {
    Released<ArrowArray> batch;
    if (const int error = stream->get_next(stream, &batch.value); error != 0)
      refuse_stream(*stream, error, place);
    if (batch.value.release == nullptr) break;
    for (std::size_t i = 0; i < columns.size(); ++i) columns[i].add(*batch.value.children[i], batch.value);
    table.num_rows += static_cast<std::size_t>(batch.value.length);
  }
  for (ArrowColumn& column : columns) table.columns.push_back(std::move(column).take());
  return table;
}

}  // namespace kindling
