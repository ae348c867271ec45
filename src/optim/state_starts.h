#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include <optional>

namespace kindling {

// Initial values of a parameter's state.
inline at::Tensor zeros_of_its_shape(const at::Tensor& parameter) { return at::zeros_like(parameter); }

// A float32 scalar, the type of Python's step counts.
inline auto scalar_start(double value) {
  return [value](const at::Tensor& parameter) {
    return at::full({}, value, parameter.options().dtype(at::kFloat));
  };
}

// Converts to the form in which fused operators take optional tensors.
inline std::optional<at::Tensor> optional_of(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

}  // namespace kindling
