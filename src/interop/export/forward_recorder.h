#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "interop/export/forward_recording.h"
#include "kindling/base/error.h"
#include "kindling/tensors/batch.h"

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
  // shallow copy of a value becomes that value, detached where it learns. Throws ExportError.
  ProgramArgument argument_for(const at::Tensor& tensor, Use use);
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

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Records what operators this thread calls while it lives, above autograd and autocast: composites such as
// layer_norm stay whole. One at a time and thread.
class ForwardRecorder {
 public:
  // `weights` are a model's parameters and buffers, by the model's names. Throws Error where nothing can be
  // recorded: something else of the process does so, or this thread already does.
  ForwardRecorder(ForwardRecording& recording, const NamedTensors& weights, const Batch& inputs);
  ~ForwardRecorder();
  ForwardRecorder(const ForwardRecorder&) = delete;
  ForwardRecorder& operator=(const ForwardRecorder&) = delete;

  // The forward has given these. Throws Error for a forward that cannot be a program, naming the operator and
  // the layer.
  void finish(const Batch& outputs);
  // Throws what finish() would.
  void require_program() const;

 private:
  static void record(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);
  static void register_fallback();
  void add(const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack& stack);
  RecordedCall begin_call(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
  void end(RecordedCall call, const torch::jit::Stack& stack, bool has_gradients);
  ProgramArgument result(const RecordedCall& call, const c10::IValue& value, bool has_gradients);
  std::string result_name(const RecordedCall& call, const at::Tensor& tensor, bool has_gradients);
  template <class Work>
  void unless_refused(const c10::OperatorHandle& op, const Work& work);

  static thread_local ForwardRecorder* current_;
  ForwardRecording& recording_;
  RecordedValues values_;
  std::unordered_map<const c10::TensorImpl*, std::string> layers_;  // by their weights
  std::string layer_;                                               // that was at work last
  std::optional<ErrorParts> refusal_;
  bool trains_;
  bool call_learns_ = false;                                       // the one that is being recorded
  std::vector<std::pair<at::Tensor, std::string>> detached_results_;  // its results without gradients
  std::uint64_t other_thread_calls_;
  std::optional<c10::impl::IncludeDispatchKeyGuard> listening_;
};

}  // namespace kindling
