#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "data/loading/array_source.h"
#include "kindling/data/array_data_options.h"

namespace kindling {

// True if the options change the values of inputs.
bool is_scaled(const ArrayDataOptions& options);

// Returns (inputs / divisor - mean) / std as float32, or integers that are not scaled. Computes in float64,
// unless it divides numbers of 16 bits or less, which float32 holds exactly. `normalize_by` is not applied.
at::Tensor scaled(const at::Tensor& inputs, const ArrayDataOptions& options);
// Undoes scaled(), for values of any floating-point type; returns float32, or its argument without a scale.
at::Tensor unscaled(const at::Tensor& values, const ArrayDataOptions& options);

// Returns the first feature of samples [samples, …] that float32 would round by more than 1e-3 of its
// standard deviation after the subtraction of `mean`; nullopt: there is none.
std::optional<std::int64_t> coarse_feature(const at::Tensor& samples, double mean);
// Warns of such a feature, after the scaling.
void warn_if_coarse(const SourceArray& inputs, const ArrayDataOptions& options);

}  // namespace kindling
