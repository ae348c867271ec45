#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "formats/pt2/pt2_file.h"

namespace kindling {

// The values of a program's parameters, buffers and constants.
struct LoadedWeights {
  std::vector<at::Tensor> storages;  // as bytes, on the CPU
  // In the order of program.inputs without the user inputs; tied ones are one tensor, others may share a
  // storage.
  std::vector<at::Tensor> tensors;
};

// Parameters require gradients as in Python. Throws CheckpointError for an input without values, and for
// values whose shape or dtype differs from that of the input.
LoadedWeights load_weights_of(const Pt2File& file);

}  // namespace kindling
