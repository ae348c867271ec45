#pragma once

#include <ATen/core/Tensor.h>

#include "kindling/base/export.h"

namespace kindling {

// How a layer's initial weights are drawn. They are always drawn on the CPU from LibTorch's default
// generator, so that a seed produces the same model on every device.
enum class WeightInit {
  // U(-1/√fan_in, 1/√fan_in), the default of PyTorch's layers (He et al., 2015, with a = √5).
  kaiming_uniform,
  // U(-√(6 / (fan_in + fan_out)), …), used for LeNet in Dive into Deep Learning (Glorot, Bengio, 2010).
  xavier_uniform,
};

// Fills a weight [out, in, kernel…] and, if defined, a bias [out] (always U(-1/√fan_in, 1/√fan_in)), in this
// order, with the same random numbers as Python's layers.
KINDLING_API void init_weights(WeightInit init, at::Tensor& weight, at::Tensor& bias);

}  // namespace kindling
