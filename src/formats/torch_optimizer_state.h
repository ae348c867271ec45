#pragma once

#include <string>
#include <vector>

#include "formats/torch_tensor_list.h"
#include "kindling/formats/torch_optimizer.h"

namespace kindling {

// The optimizer's state dict that a pickle is, or that is under a key of it.
struct OptimizerInPickle {
  std::vector<TorchTensor> tensors;
  std::vector<TorchOptimizerGroup> groups;
  std::vector<TorchOptimizerEntry> state;
};

// Checked as TorchTensorList does. Throws CheckpointError.
OptimizerInPickle optimizer_in(const Pickle& pickle, const std::string& key, const TorchStorages& storages,
                               const std::string& place);

inline const std::string kOptimizerRemedy =
    "save it in Python with torch.save(optimizer.state_dict(), path), of an optimizer of torch.optim";

}  // namespace kindling
