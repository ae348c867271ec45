#pragma once

#include <string>
#include <vector>

#include "formats/torch/torch_container.h"
#include "kindling/formats/torch_file.h"

namespace kindling {

// The state dict in a file.
struct TorchWeights {
  std::vector<TorchTensor> tensors{};
  std::vector<std::string> skipped{};  // its entries without tensors: "epoch" (a number)
};

// Returns the state dict in a file: a dict of tensors, or the parameters and buffers of a whole module or a
// TorchScript program. It is the file's object, or the entry that `key` names by its path, such as
// "model.state_dict"; without a key also the only one that has all tensors of the file. Validates that the
// tensors fit into their storages, and that all together are not larger than shared storages explain. Throws
// CheckpointError, also for a state dict that is empty or would lose a tensor.
TorchWeights torch_weights_in(const TorchContainer& file, const std::string& key);

// Returns the last entry of this name of a dict, as Python; nullptr: there is none.
const PickleValue* entry_of(const Pickle& pickle, const PickleValue& dict, std::string_view key);
// True for the state dict of an optimizer.
bool is_optimizer_state(const Pickle& pickle, const PickleValue& value);

}  // namespace kindling
