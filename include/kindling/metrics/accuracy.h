#pragma once

#include <ATen/core/Tensor.h>

#include "kindling/base/export.h"

namespace kindling {

// The share of samples whose largest output stands at their label: outputs [batch, classes], labels [batch]
// (integers) → float32 scalar on the same device. Not differentiable; no host wait.
KINDLING_API at::Tensor accuracy(const at::Tensor& outputs, const at::Tensor& labels);

}  // namespace kindling
