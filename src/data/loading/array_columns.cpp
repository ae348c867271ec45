#include "data/loading/array_columns.h"

#include <ATen/ops/isinf.h>

#include <string>
#include <utility>

namespace kindling {
namespace {

using Column = StoredDataset::Column;

at::Tensor as_float32(const at::Tensor& values, const SourceArray& array) {
  at::Tensor rounded = values.to(at::kFloat);
  if (at::isinf(rounded).sum().item<std::int64_t>() != at::isinf(values).sum().item<std::int64_t>())
    array.refuse("values that float32 can hold, up to 3.4e38");
  return rounded;
}

// Converts some samples of the array. Inputs of float64 keep it until they are scaled.
at::Tensor converted_inputs(const at::Tensor& values, const SourceArray& array, bool will_be_scaled) {
  switch (values.scalar_type()) {
    case at::kDouble: {
      at::Tensor rounded = as_float32(values, array);
      return will_be_scaled ? values.contiguous() : rounded;
    }
    case at::kUInt16:  // LibTorch computes little with these
    case at::kUInt32:
    case at::kUInt64:
      return values.to(at::kLong);
    default:
      return values.contiguous();
  }
}

at::Tensor converted_labels(const at::Tensor& values, const SourceArray& array) {
  if (at::isIntegralType(values.scalar_type(), /*includeBool=*/true)) {
    const at::Tensor labels = values.to(at::kLong);
    return labels.dim() == 2 && labels.size(1) == 1 ? labels.squeeze(1) : labels.contiguous();
  }
  const at::Tensor labels = as_float32(values, array);
  return labels.dim() == 1 ? labels.unsqueeze(1) : labels.contiguous();
}

// Converts all samples; those in a file when they are read.
template <class Convert>
Column column_of(const SourceArray& array, Convert convert) {
  if (!array.rows) return convert(array.values);
  return StoredRows({.source = array.rows, .like = array.values, .convert = std::move(convert)});
}

}  // namespace

Column input_column(const SourceArray& array, bool will_be_scaled) {
  if (array.values.dim() == 0 || array.values.is_complex()) array.refuse("numbers [samples, …]");
  if (array.values.numel() == 0) array.refuse("at least one sample, and values in it");
  return column_of(array, [array, will_be_scaled](const at::Tensor& values) {
    return converted_inputs(values, array, will_be_scaled);
  });
}

Column label_column(const SourceArray& array, std::int64_t num_samples) {
  const at::Tensor& labels = array.values;
  if (labels.dim() == 0 || labels.is_complex() || labels.size(0) != num_samples)
    array.refuse("one label per sample, [" + std::to_string(num_samples) + ", …]");
  return column_of(array, [array](const at::Tensor& values) { return converted_labels(values, array); });
}

}  // namespace kindling
