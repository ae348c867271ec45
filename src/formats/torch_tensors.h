#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/pickle.h"
#include "kindling/formats/torch_file.h"

namespace kindling {

// A storage of an archive, by the key that pickles name it with.
struct TorchStorage {
  std::size_t index = 0;  // place among the archive's entries
  std::size_t size_bytes = 0;
};
using TorchStorages = std::unordered_map<std::string_view, TorchStorage>;

// What Python would do to make a safetensors file of a .pt that is refused here.
std::string conversion_in_python(const std::string& place);

// The tensors of the state dict that a pickle is, or that is under a key of it. Everything has been checked:
// they fit into their storages, and all of them together are no more than what storages that are shared
// account for. Throws CheckpointError.
std::vector<TorchTensor> state_dict_tensors(const Pickle& pickle, const std::string& key,
                                            const TorchStorages& storages, const std::string& place);

}  // namespace kindling
