#pragma once

#include <vector>

#include "kindling/formats/safetensors.h"
#include "kindling/tensors/state_dict.h"
#include "tensors/weights_file.h"

namespace kindling {

// A state's tensors in the form that file writers need, contiguous on the host; keeps their bytes alive.
// Throws CheckpointError for a dtype that the file format does not support.
struct HostTensors {
  explicit HostTensors(const StateDict& state);

  std::vector<at::Tensor> held;
  std::vector<TensorToWrite> writes;
};

// Converts a state to the bytes of a safetensors file, and back.
std::string state_bytes(const StateDict& state);
StateDict state_of_bytes(const std::string& bytes, const std::string& place);

// Reads to the CPU; entries with the same values become one tensor.
StateDict read_state(const WeightsFile& file);

}  // namespace kindling
