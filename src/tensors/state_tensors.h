#pragma once

#include <string>
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

// Adds the part's entries under a prefix.
inline void put(StateDict& state, const std::string& prefix, const StateDict& part) {
  for (const auto& [name, tensor] : part.tensors) state.tensors.emplace_back(prefix + name, tensor);
  for (const auto& [name, value] : part.metadata) state.metadata[prefix + name] = value;
}

// Returns the entries under a prefix, without it.
inline StateDict part_of(const StateDict& state, const std::string& prefix) {
  StateDict part;
  for (const auto& [name, tensor] : state.tensors)
    if (name.starts_with(prefix)) part.tensors.emplace_back(name.substr(prefix.size()), tensor);
  for (const auto& [name, value] : state.metadata)
    if (name.starts_with(prefix)) part.metadata[name.substr(prefix.size())] = value;
  return part;
}

// Converts a state to the bytes of a safetensors file, and back.
std::string state_bytes(const StateDict& state);
StateDict state_of_bytes(const std::string& bytes, const std::string& place);

// Reads to the CPU; entries with the same values become one tensor.
StateDict read_state(const WeightsFile& file);

// The same, without a copy of large safetensors files that have no checksums: see load_safetensors().
StateDict read_or_map_state(WeightsFile file);

// A copy of a state in host memory, independent of later changes of the state. The next copy reuses the
// memory where names, shapes and dtypes are the same.
class StateCopy {
 public:
  void take(const StateDict& state);
  const StateDict& state() const noexcept { return copy_; }

 private:
  StateDict copy_;
};

}  // namespace kindling
