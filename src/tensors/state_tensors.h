#pragma once

#include <vector>

#include "kindling/formats/safetensors.h"
#include "kindling/tensors/state_dict.h"
#include "tensors/weights_file.h"

namespace kindling {

// A state's tensors as writers of files want them, contiguous on the host; keeps their bytes alive. Throws
// CheckpointError for a dtype that files have no name for.
struct HostTensors {
  explicit HostTensors(const StateDict& state);

  std::vector<at::Tensor> held;
  std::vector<TensorToWrite> writes;
};

// A state as bytes, those of a file of safetensors, and back.
std::string state_bytes(const StateDict& state);
StateDict state_of_bytes(const std::string& bytes, const std::string& place);

// To the CPU; entries of the same values are one tensor.
StateDict read_state(const WeightsFile& file);

}  // namespace kindling
