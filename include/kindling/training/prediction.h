#pragma once

#include <ATen/core/Tensor.h>

#include "kindling/tensors/batch.h"

namespace kindling {

// What a model makes of a batch.
struct Prediction {
  Batch outputs{};       // of Module::predict_outputs, on the CPU
  Batch batch{};         // what the model got, on its device: inputs and labels
  at::Tensor indices{};  // int64 [samples] on the CPU: which samples of the data set these are
};

}  // namespace kindling
