#pragma once

#include <ATen/core/Tensor.h>

#include "kindling/tensors/batch.h"

namespace kindling {

// The outputs of a model for one batch.
struct Prediction {
  Batch outputs{};       // of Module::predict_outputs(), on the CPU; in validate() see there
  Batch batch{};         // the model's inputs and labels, on its device
  at::Tensor indices{};  // int64 [samples] on the CPU: the samples' indices in the data set
};

}  // namespace kindling
