#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "formats/torch/pickle.h"
#include "kindling/formats/torch_file.h"

namespace kindling {

// A storage in an archive, by the key that pickles use.
struct TorchStorage {
  std::size_t index = 0;  // index among the archive's entries
  std::size_t size_bytes = 0;
};
using TorchStorages = std::unordered_map<std::string_view, TorchStorage>;

// The tensors of a pickle, validated as they are added: they fit into their storages, and all together are
// not larger than shared storages explain. The arguments must outlive it.
class TorchTensorList {
 public:
  TorchTensorList(const Pickle& pickle, const TorchStorages& storages, const std::string& place);

  // Throws CheckpointError, also for a duplicate name.
  void add(std::string_view name, const PickleValue& tensor);
  std::size_t size() const { return tensors_.size(); }
  std::vector<TorchTensor> take() { return std::move(tensors_); }

 private:
  const Pickle& pickle_;
  const TorchStorages& storages_;
  const std::string& place_;
  std::vector<TorchTensor> tensors_;
  std::unordered_set<std::string> names_;
  std::size_t stored_ = 0, named_ = 0;  // bytes
};

// Returns Python code, in a line to paste, that converts a refused .pt file to safetensors.
std::string conversion_in_python(const std::string& place);
PickleRemedies conversions_in_python(const std::string& place);
// Returns a key as messages show it.
std::string quoted_key(std::string_view key);
[[noreturn]] void refuse_torch(const std::string& place, const std::string& where, const std::string& found,
                               const std::string& wanted = "");

// Calls a function for the entries of a dict that have a string as their key.
template <class Visit>
void for_each_named(const Pickle& pickle, const PickleValue& dict, Visit visit) {
  for (std::size_t i = 0; i < dict.items.size(); i += 2)
    if (const PickleValue& name = pickle[dict.items[i]]; name.kind == PickleValue::Kind::text)
      visit(name.text, pickle[dict.items[i + 1]]);
}

}  // namespace kindling
