#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include <optional>

namespace kindling {

// How state of a parameter starts.
inline at::Tensor zeros_of_its_shape(const at::Tensor& parameter) { return at::zeros_like(parameter); }

// A float32 scalar, as Python counts with.
inline auto scalar_start(double value) {
  return [value](const at::Tensor& parameter) {
    return at::full({}, value, parameter.options().dtype(at::kFloat));
  };
}

// As the fused operators take tensors that may not be there.
inline std::optional<at::Tensor> optional_of(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

}  // namespace kindling
