#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "kindling/base/export.h"

namespace kindling {

// Scales the gradients in place by min(1, max_norm / (norm + 1e-6)), where norm is the 2-norm of all of them
// together (Pascanu, Mikolov, Bengio, 2013; the constant is PyTorch's). Returns the norm before scaling: a
// scalar on the gradients' device. The host does not wait. All gradients must be on one device; for an empty
// list the result is an undefined tensor. Complex gradients count as pairs of real numbers. Throws Error if
// one of them requires a gradient, because it is then a parameter, which PyTorch's clip_grad_norm_ takes.
KINDLING_API at::Tensor clip_grad_norm(std::span<const at::Tensor> gradients, double max_norm);

// Limits each number of the gradients to [−clip_value, clip_value] in place, as PyTorch's clip_grad_value_
// does; NaN stays. Limits both parts of complex numbers, which PyTorch refuses. The same requirements; sparse
// gradients throw Error.
KINDLING_API void clip_grad_value(std::span<const at::Tensor> gradients, double clip_value);

}  // namespace kindling
