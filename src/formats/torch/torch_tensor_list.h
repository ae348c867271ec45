#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "formats/torch/pickle.h"
#include "formats/torch/python_conversion.h"
#include "formats/torch/torch_container.h"
#include "kindling/formats/torch_file.h"

namespace kindling {

// The tensors of a pickle, validated as they are added: they fit into their storages, and all together are
// not larger than shared storages explain. The file must outlive it.
class TorchTensorList {
 public:
  // `python`: where Python finds the tensors, for the messages.
  explicit TorchTensorList(const TorchContainer& file, PythonSource python = {});

  // Throws CheckpointError, also for a duplicate name.
  void add(std::string_view name, const PickleValue& tensor);
  std::size_t size() const { return tensors_.size(); }
  std::vector<TorchTensor> take() { return std::move(tensors_); }

 private:
  const TorchContainer& file_;
  PythonSource python_;
  std::vector<TorchTensor> tensors_;
  std::unordered_set<std::string> names_;
  std::size_t stored_ = 0, named_ = 0;  // bytes
};

// Calls a function for the entries of a dict that have a string as their key.
template <class Visit>
void for_each_named(const Pickle& pickle, const PickleValue& dict, Visit visit) {
  for (std::size_t i = 0; i < dict.items.size(); i += 2)
    if (const PickleValue& name = pickle[dict.items[i]]; name.kind == PickleValue::Kind::text)
      visit(name.text, pickle[dict.items[i + 1]]);
}

}  // namespace kindling
