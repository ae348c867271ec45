#pragma once

#include <string>
#include <vector>

#include "formats/torch/torch_container.h"
#include "kindling/formats/torch_optimizer.h"

namespace kindling {

// The state dict of an optimizer in a pickle.
struct OptimizerInPickle {
  std::vector<TorchTensor> tensors;
  std::vector<TorchOptimizerGroup> groups;
  std::vector<TorchOptimizerEntry> state;
};

inline const std::string kOptimizerRemedy =
    "save the state of a torch.optim optimizer in Python with torch.save(optimizer.state_dict(), path)";

// Returns the file's object or the entry of the key. Validated as TorchTensorList does. Throws
// CheckpointError.
OptimizerInPickle optimizer_in(const TorchContainer& file, const std::string& key);

}  // namespace kindling
