#include "data/sources/table_transform.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/div.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "data/sources/unified_values.h"
#include "data/transforms/number_scale.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "kindling/base/text.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

constexpr double kUnknownCode = -1;

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

// Returns the smallest of the most frequent values.
double most_frequent(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  std::size_t most = 0, count = 0;
  double best = values.front();
  for (std::size_t i = 0; i < values.size(); ++i) {
    count = i > 0 && values[i] == values[i - 1] ? count + 1 : 1;
    if (count <= most) continue;
    most = count;
    best = values[i];
  }
  return best;
}

// `place` names the column.
void warn_of_rounding(const NumberScale& scale, const std::string& place) {
  log_warning(place + ": float32 rounds the values coarsely, because the largest is " +
              short_text(scale.largest, 3) + ", but their standard deviation " +
              short_text(scale.deviation, 3) +
              "; set data.normalize = true, which subtracts the mean in float64 first, or subtract an offset "
              "from the column");
}

struct FittedNumber {
  double fill = 0, mean = 0, deviation = 1;  // after the subtraction of the offset
  std::optional<double> offset{};
};

// Takes the values that are not missing.
FittedNumber fit_number(std::vector<double> known, std::int64_t num_rows, const std::string& missing,
                        bool normalize, const std::string& place) {
  if (known.empty())
    throw DataError({.place = place,
                     .found = "the training rows have no value",
                     .wanted = "at least one",
                     .remedy = "omit the column from data.features"});
  const double fill = missing == "median"          ? median_of(known)
                      : missing == "most_frequent" ? most_frequent(known)
                                                   : mean_of(known);
  known.resize(static_cast<std::size_t>(num_rows), fill);
  const NumberScale scale = scale_of(known);
  if (!normalize) {
    if (scale.needs_offset()) warn_of_rounding(scale, place);
    return {.fill = fill};
  }
  const double deviation = scale.deviation > 0 ? scale.deviation : 1;
  if (!scale.needs_offset()) return {.fill = fill, .mean = scale.mean, .deviation = deviation};
  return {.fill = fill - scale.mean, .deviation = deviation, .offset = scale.mean};
}

// The descriptions of two transforms of the same raw inputs differ only in what this leaves out.
TableSchema without_statistics(TableSchema schema) {
  schema.scales_in_double = schema.unifies_values = true;
  schema.booleans.clear(), schema.integers.clear();
  for (auto& [name, unit] : schema.units) unit.has_groups = false;
  for (TableFeature& feature : schema.features) feature.offset.reset();
  return schema;
}

// An exported program would contain a conversion to the same dtype.
at::Tensor in_type(const at::Tensor& values, at::ScalarType type) {
  return values.scalar_type() == type ? values : values.to(type);
}

at::ScalarType type_of_statistics(const TableSchema& schema) {
  return schema.scales_in_double ? at::kDouble : at::kFloat;
}

}  // namespace

TableTransform::TableTransform(TableSchema schema) : schema_(std::move(schema)) {
  std::vector<std::int64_t> numbers, code_columns;
  std::vector<double> codes;
  for (std::size_t i = 0; i < schema_.features.size(); ++i) {
    const auto index = static_cast<std::int64_t>(i);
    if (schema_.features[i].kind == ColumnKind::number) numbers.push_back(index);
    for (std::size_t code = 0; code < schema_.features[i].categories.size(); ++code) {
      code_columns.push_back(index);
      codes.push_back(static_cast<double>(code));
    }
  }
  const auto num_features = static_cast<std::int64_t>(schema_.features.size()),
             num_numbers = static_cast<std::int64_t>(numbers.size());
  const at::ScalarType type = type_of_statistics(schema_);
  fill_ = register_buffer("fill", at::full({num_features}, kUnknownCode, type));
  numbers_ = register_buffer("numbers", at::tensor(numbers, at::kLong));
  mean_ = register_buffer("mean", at::zeros({num_numbers}, type));
  std_ = register_buffer("std", at::ones({num_numbers}, type));
  code_column_ = register_buffer("code_column", at::tensor(code_columns, at::kLong));
  code_ = register_buffer("code", at::tensor(codes, at::kFloat));
  take_offsets();
}

void TableTransform::take_offsets() {
  std::vector<double> offsets;
  for (const TableFeature& feature : schema_.features) offsets.push_back(feature.offset.value_or(0));
  offset_ =
      schema_.has_offsets() ? std::make_unique<DeviceConstant>(at::tensor(offsets, at::kDouble)) : nullptr;
}

bool TableTransform::adopt(const std::string& description) {
  const TableSchema saved = TableSchema::parse(description, kInputTransform);
  if (without_statistics(with_texts_of(schema_, saved)).text() != without_statistics(schema_).text())
    return false;
  for (const TableFeature& feature : schema_.features)
    if (feature.offset && !saved.scales_in_double)
      log_warning("column '" + one_line(feature.name) +
                  "': float32 rounds the values coarsely, as in the saved run, which is of a former version; "
                  "start a new run to keep their digits");
  schema_ = saved;
  for (at::Tensor* buffer : {&fill_, &mean_, &std_}) buffer->set_data(buffer->to(type_of_statistics(saved)));
  take_offsets();
  return true;
}

void TableTransform::fit(const at::Tensor& raw, const std::string& missing, bool normalize,
                         const std::string& place) {
  const at::NoGradGuard no_grad;
  const at::Tensor columns = raw.t().contiguous();
  const std::int64_t rows = raw.size(0);
  std::size_t number = 0;
  for (std::size_t i = 0; i < schema_.features.size(); ++i) {
    TableFeature& feature = schema_.features[i];
    const std::string column = place + ", column '" + one_line(feature.name) + "'";
    const double* const begin = columns.const_data_ptr<double>() + static_cast<std::int64_t>(i) * rows;
    std::vector<double> known;
    std::copy_if(begin, begin + rows, std::back_inserter(known),
                 [](double value) { return !std::isnan(value); });
    if (feature.kind == ColumnKind::number) {
      const FittedNumber fitted = fit_number(known, rows, missing, normalize, column);
      feature.offset = fitted.offset;
      fill_.mutable_data_ptr<double>()[i] = fitted.fill;
      mean_.mutable_data_ptr<double>()[number] = fitted.mean;
      std_.mutable_data_ptr<double>()[number] = fitted.deviation;
      ++number;
    } else if (known.empty()) {
      log_warning(column +
                  ": the training rows have no value, so that the model does not receive the column");
    } else if (missing == "most_frequent") {
      fill_.mutable_data_ptr<double>()[i] = most_frequent(known);
    }
  }
  take_offsets();
  if (schema_.num_encoded() == 0)
    throw DataError({.place = place,
                     .found = "the training rows have no value in any column that the model reads",
                     .wanted = "at least one"});
}

at::Tensor TableTransform::forward(const at::Tensor& raw) {
  if (offset_ && raw.is_floating_point() && raw.scalar_type() != at::kDouble) refuse_rounded(raw);
  const bool is_float = !schema_.scales_in_double || raw.scalar_type() == at::kFloat;
  const at::ScalarType type = is_float ? at::kFloat : at::kDouble;
  at::Tensor rows = in_type(raw, type);
  if (offset_) rows = at::sub(rows, offset_->like(rows));
  const at::Tensor filled = at::where(at::isnan(rows), in_type(fill_, type), rows);
  const std::int64_t columns =
      raw.dim() - 1;  // the last dimension: [rows, features] or [batch, window, features]
  std::vector<at::Tensor> parts;
  if (numbers_.size(0) > 0) {
    const at::Tensor numbers = at::index_select(filled, columns, numbers_);
    parts.push_back(
        in_type(at::div(at::sub(numbers, in_type(mean_, type)), in_type(std_, type)), at::kFloat));
  }
  if (code_.size(0) > 0)
    parts.push_back(
        at::eq(at::index_select(filled, columns, code_column_), in_type(code_, type)).to(at::kFloat));
  return parts.size() == 1 ? parts.front() : at::cat(parts, columns);
}

void TableTransform::refuse_rounded(const at::Tensor& raw) const {
  const auto feature =
      std::ranges::find_if(schema_.features, [](const auto& f) { return f.offset.has_value(); });
  throw DataError({.place = std::string(kInputTransform) + ", column '" + one_line(feature->name) + "'",
                   .found = "the rows are " + type_text(raw) + ", which rounds the values around " +
                            number_text(*feature->offset) + " coarsely",
                   .wanted = "float64 rows",
                   .remedy = "read them as float64; rows that were float32 before have lost their digits"});
}

void TableTransform::follow(const at::Tensor& raw) {
  if (fill_.device() != raw.device()) to(raw.device());
}

}  // namespace kindling
