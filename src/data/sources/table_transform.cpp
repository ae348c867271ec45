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
#include <utility>
#include <vector>

#include "kindling/base/error.h"

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

// Returns the standard deviation with n in the denominator; 1 for a constant.
double deviation_of(const std::vector<double>& values, double mean) {
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  const double deviation = std::sqrt(sum / static_cast<double>(values.size()));
  return deviation > 0 ? deviation : 1;
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
  auto* const fill = fill_.mutable_data_ptr<float>();
  std::size_t number = 0;
  for (std::size_t i = 0; i < schema_.features.size(); ++i) {
    const TableFeature& feature = schema_.features[i];
    const double* const begin = columns.const_data_ptr<double>() + static_cast<std::int64_t>(i) * rows;
    std::vector<double> values(begin, begin + rows), known;
    std::copy_if(values.begin(), values.end(), std::back_inserter(known),
                 [](double value) { return !std::isnan(value); });
    if (feature.kind == ColumnKind::category) {
      if (missing == "most_frequent" && !known.empty()) fill[i] = static_cast<float>(most_frequent(known));
      continue;
    }
    if (known.empty())
      throw DataError({.place = place + ", column '" + feature.name + "'",
                       .found = "the training rows have no value",
                       .wanted = "at least one",
                       .remedy = "omit the column from data.features"});
    const double replacement = missing == "median"          ? median_of(known)
                               : missing == "most_frequent" ? most_frequent(known)
                                                            : mean_of(known);
    fill[i] = static_cast<float>(replacement);
    if (normalize) {
      std::replace_if(
          values.begin(), values.end(), [](double value) { return std::isnan(value); }, replacement);
      const double mean = mean_of(values);
      mean_.mutable_data_ptr<float>()[number] = static_cast<float>(mean);
      std_.mutable_data_ptr<float>()[number] = static_cast<float>(deviation_of(values, mean));
    }
    ++number;
  }
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
