#pragma once

#include <ATen/core/Tensor.h>

#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "programs/forward_recording.h"

namespace kindling {

// Which value of a recording a tensor is, while the recording is made. What it has seen stays alive, so that
// no address means two tensors.
class RecordedValues {
 public:
  explicit RecordedValues(ForwardRecording& recording) : recording_(recording) {}

  // A new value, from now on the one that this tensor is. `learns`: it hangs on inputs or weights.
  std::string add(const at::Tensor& tensor, bool learns);

  // What an operator does with a tensor that it takes.
  enum class Use { reads, looks, writes, overwrites };
  // The argument that stands for a tensor. One that the host has filled becomes a constant; one that is a
  // shallow copy of a value becomes that value, detached where it learns. Throws NoProgram.
  ProgramArgument taken(const at::Tensor& tensor, Use use);
  bool learns(const std::string& value) const { return learning_.contains(value); }

  // Memory into which no operator has written: what is read of it, the host has put there.
  void add_blank(const at::Tensor& tensor) { blank_.insert(storage_of(tensor)); }
  // The value without its history, for what has been computed without gradients.
  std::string detached(const at::Tensor& tensor, const std::string& value);

  static const void* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

 private:
  ProgramArgument constant(const at::Tensor& tensor);
  // The latest value with the memory and the geometry of a tensor; empty: there is none.
  std::string copied_value(const at::Tensor& tensor) const;

  ForwardRecording& recording_;
  std::unordered_map<const c10::TensorImpl*, std::string> names_;
  std::unordered_map<const void*, std::vector<std::string>> by_storage_;
  std::set<std::string> learning_;
  std::set<const void*> blank_;
  std::vector<at::Tensor> kept_;
  std::size_t count_ = 0;
};

}  // namespace kindling
