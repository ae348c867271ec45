#pragma once

#include <ATen/core/Tensor.h>

#include "kindling/base/export.h"

namespace kindling {

// How a layer's first weights are drawn, always on the CPU from LibTorch's default generator, so that a seed
// gives the same model on every device.
enum class WeightInit {
  kaiming_uniform,  // U(-1/√fan_in, 1/√fan_in), the default of PyTorch's layers (He et al., 2015, with a =
                    // √5)
  xavier_uniform,  // U(-√(6 / (fan_in + fan_out)), …), the textbook's choice for LeNet (Glorot, Bengio, 2010)
};

// Fills a weight [out, in, kernel…] and, when it is defined, a bias [out] (always U(-1/√fan_in, 1/√fan_in)),
// in this order, drawing the numbers that Python's layers draw.
KINDLING_API void init_weights(WeightInit init, at::Tensor& weight, at::Tensor& bias);

}  // namespace kindling
