#pragma once

#include <string>
#include <vector>

#include "formats/torch_tensor_list.h"
#include "kindling/formats/torch_file.h"

namespace kindling {

// The tensors of the state dict that a pickle is, or that is under a key of it. Everything has been checked:
// they fit into their storages, and all of them together are no more than what storages that are shared
// account for. Throws CheckpointError.
std::vector<TorchTensor> state_dict_tensors(const Pickle& pickle, const std::string& key,
                                            const TorchStorages& storages, const std::string& place);

}  // namespace kindling
