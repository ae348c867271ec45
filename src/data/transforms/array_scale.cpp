#include "data/transforms/array_scale.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/div.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/std.h>

#include <string>

#include "data/transforms/number_scale.h"
#include "kindling/base/log.h"

namespace kindling {
namespace {

// Scaled integers and float64 have digits that float32 may lack. The means of normalize_by are subtracted in
// float64.
bool may_lose_digits(const at::Tensor& inputs, const ArrayDataOptions& options) {
  if (options.normalize_by) return false;
  if (at::isIntegralType(inputs.scalar_type(), /*includeBool=*/true))
    return is_scaled(options) && inputs.element_size() >= 4;
  return inputs.scalar_type() == at::kDouble;
}

}  // namespace

bool is_scaled(const ArrayDataOptions& options) {
  return options.divisor != 1 || options.normalize || options.normalize_by;
}

at::Tensor scaled(const at::Tensor& inputs, const ArrayDataOptions& options) {
  const bool is_small = inputs.element_size() < 4 && !options.keep_type;
  if (!is_scaled(options)) return is_small ? inputs.to(at::kFloat) : inputs;
  if (is_small && !options.normalize)
    return at::div(inputs.is_floating_point() ? inputs.to(at::kFloat) : inputs, options.divisor);
  at::Tensor values = inputs.to(at::kDouble);
  if (options.divisor != 1) values = at::div(values, options.divisor);
  if (options.normalize) values = (values - (*options.normalize)[0]) / (*options.normalize)[1];
  return values.to(at::kFloat);
}

at::Tensor unscaled(const at::Tensor& values, const ArrayDataOptions& options) {
  if (!is_scaled(options)) return values;
  at::Tensor raw = values.to(at::kDouble);
  if (options.normalize) raw = raw * (*options.normalize)[1] + (*options.normalize)[0];
  return (raw * options.divisor).to(at::kFloat);
}

std::optional<std::int64_t> coarse_feature(const at::Tensor& samples, double mean) {
  const at::Tensor features = samples.reshape({samples.size(0), -1}).to(at::kDouble);
  const at::Tensor deviation = at::std(features, at::IntArrayRef{0}, /*unbiased=*/false);
  const at::Tensor largest = at::maximum((features.amax(0) - mean).abs(), (features.amin(0) - mean).abs());
  const at::Tensor is_coarse = (deviation > 0) & (largest * kFloat32Rounding > deviation * kMostRounding);
  if (!is_coarse.any().item<bool>()) return std::nullopt;
  return is_coarse.to(at::kByte).argmax().item<std::int64_t>();
}

void warn_if_coarse(const SourceArray& inputs, const ArrayDataOptions& options) {
  if (!may_lose_digits(inputs.values, options)) return;
  const double mean = options.normalize ? (*options.normalize)[0] * options.divisor : 0;
  const auto feature = coarse_feature(inputs.some_samples(), mean);
  if (!feature) return;
  log_warning(
      inputs.place() + ": float32 rounds feature " + std::to_string(*feature) +
      " of the samples by more than 1e-3 of its standard deviation; set data.normalize = [mean, std], "
      "whose mean is subtracted in float64, or subtract an offset in the file");
}

}  // namespace kindling
