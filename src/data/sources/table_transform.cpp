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

#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

constexpr double kUnknownCode = -1;

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
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

struct Scale {
  double mean = 0, deviation = 0;  // with n in the denominator; exactly 0 for a constant
};

// The smallest and the largest value are compared, because the mean of a constant may be rounded.
Scale scale_of(const std::vector<double>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  if (*least == *most) return {.mean = *least};
  Scale scale{.mean = mean_of(values)};
  double sum = 0;
  for (const double value : values) sum += (value - scale.mean) * (value - scale.mean);
  scale.deviation = std::sqrt(sum / static_cast<double>(values.size()));
  if (scale.deviation < std::numeric_limits<float>::min()) scale.deviation = 0;
  return scale;
}

bool is_constant(const std::vector<double>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return *least == *most;
}

// Raw inputs are float32, so that the statistics are those of the rounded values.
std::vector<double> rounded(const std::vector<double>& values) {
  std::vector<double> floats;
  floats.reserve(values.size());
  for (const double value : values) floats.push_back(static_cast<double>(static_cast<float>(value)));
  return floats;
}

// `place` names the column.
void warn_if_coarse(const std::vector<double>& exact, const Scale& scale, const std::string& place) {
  constexpr double kMostOffset = 1e5;  // float32 has 7 digits
  const char* const remedy = "; subtract an offset from the column, such as its smallest value";
  if (scale.deviation == 0 && !is_constant(exact))
    log_warning(place +
                ": the values differ by less than float32 can represent, so that the model receives a "
                "constant" +
                remedy);
  else if (scale.deviation > 0 && std::abs(scale.mean) > kMostOffset * scale.deviation)
    log_warning(place + ": float32 rounds the values coarsely, because their mean is " +
                short_text(scale.mean, 3) + ", but their standard deviation " +
                short_text(scale.deviation, 3) + remedy);
}

struct FittedNumber {
  float fill = 0, mean = 0, deviation = 1;
};

// Takes the values that are not missing.
FittedNumber fit_number(const std::vector<double>& known, std::int64_t num_rows, const std::string& missing,
                        const std::string& place) {
  if (known.empty())
    throw DataError({.place = place,
                     .found = "the training rows have no value",
                     .wanted = "at least one",
                     .remedy = "omit the column from data.features"});
  std::vector<double> values = rounded(known);
  const auto fill = static_cast<float>(missing == "median"          ? median_of(values)
                                       : missing == "most_frequent" ? most_frequent(values)
                                                                    : mean_of(values));
  values.resize(static_cast<std::size_t>(num_rows), static_cast<double>(fill));
  const Scale scale = scale_of(values);
  warn_if_coarse(known, scale, place);
  return {.fill = fill,
          .mean = static_cast<float>(scale.mean),
          .deviation = scale.deviation > 0 ? static_cast<float>(scale.deviation) : 1};
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
  fill_ = register_buffer("fill", at::full({num_features}, kUnknownCode, at::kFloat));
  numbers_ = register_buffer("numbers", at::tensor(numbers, at::kLong));
  mean_ = register_buffer("mean", at::zeros({num_numbers}, at::kFloat));
  std_ = register_buffer("std", at::ones({num_numbers}, at::kFloat));
  code_column_ = register_buffer("code_column", at::tensor(code_columns, at::kLong));
  code_ = register_buffer("code", at::tensor(codes, at::kFloat));
}

void TableTransform::fit(const at::Tensor& raw, const std::string& missing, bool normalize,
                         const std::string& place) {
  const at::NoGradGuard no_grad;
  const at::Tensor columns = raw.t().contiguous();
  const std::int64_t rows = raw.size(0);
  std::size_t number = 0;
  for (std::size_t i = 0; i < schema_.features.size(); ++i) {
    const TableFeature& feature = schema_.features[i];
    const std::string column = place + ", column '" + one_line(feature.name) + "'";
    const double* const begin = columns.const_data_ptr<double>() + static_cast<std::int64_t>(i) * rows;
    std::vector<double> known;
    std::copy_if(begin, begin + rows, std::back_inserter(known),
                 [](double value) { return !std::isnan(value); });
    if (feature.kind == ColumnKind::number) {
      const FittedNumber fitted = fit_number(known, rows, missing, column);
      fill_.mutable_data_ptr<float>()[i] = fitted.fill;
      if (normalize) {
        mean_.mutable_data_ptr<float>()[number] = fitted.mean;
        std_.mutable_data_ptr<float>()[number] = fitted.deviation;
      }
      ++number;
    } else if (known.empty()) {
      log_warning(column +
                  ": the training rows have no value, so that the model does not receive the column");
    } else if (missing == "most_frequent") {
      fill_.mutable_data_ptr<float>()[i] = static_cast<float>(most_frequent(known));
    }
  }
  if (schema_.num_encoded() == 0)
    throw DataError({.place = place,
                     .found = "the training rows have no value in any column that the model reads",
                     .wanted = "at least one"});
}

at::Tensor TableTransform::forward(const at::Tensor& raw) {
  const at::Tensor filled = at::where(at::isnan(raw), fill_, raw);
  std::vector<at::Tensor> parts;
  if (numbers_.size(0) > 0)
    parts.push_back(at::div(at::sub(at::index_select(filled, 1, numbers_), mean_), std_));
  if (code_.size(0) > 0)
    parts.push_back(at::eq(at::index_select(filled, 1, code_column_), code_).to(at::kFloat));
  return parts.size() == 1 ? parts.front() : at::cat(parts, 1);
}

void TableTransform::follow(const at::Tensor& raw) {
  if (fill_.device() != raw.device()) to(raw.device());
}

}  // namespace kindling
