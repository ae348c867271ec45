#pragma once

#include <ATen/core/Tensor.h>

namespace kindling {

// Whether the last dimensions of `sizes` [samples, …] are those of `space`, and another one comes before.
bool is_field(at::IntArrayRef sizes, at::IntArrayRef space);

// Returns a part of each sample of `fields` [batch, …, a, b, …]: [batch, …, patch], whose last dimensions
// have the sizes of `patch`. `numbers` [batch, dimensions of the patch]: uniform in [0, 1), on the device of
// the fields; they choose the place, all places alike. Waits for no device.
at::Tensor random_patches(const at::Tensor& fields, const at::Tensor& numbers, at::IntArrayRef patch);

}  // namespace kindling
