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

// Maps tensors to values of a recording while it is made. Keeps the tensors alive, so that addresses are
// unique.
class RecordedValues {
 public:
  explicit RecordedValues(ForwardRecording& recording) : recording_(recording) {}

  // Creates a new value for a tensor. `learns`: it depends on inputs or weights.
  std::string add(const at::Tensor& tensor, bool learns);

  // How an operator uses a tensor argument.
  enum class Use { reads, looks, writes, overwrites };
  // Returns the argument for a tensor. A tensor that the host has filled becomes a constant; a shallow copy
  // of a value becomes that value, detached if it learns. Throws ExportError.
  ProgramArgument argument_for(const at::Tensor& tensor, Use use);
  bool learns(const std::string& value) const { return learning_.contains(value); }

  // Marks memory that no operator has written to: its contents come from the host.
  void add_blank(const at::Tensor& tensor) { blank_.insert(storage_of(tensor)); }
  // Returns the detached value, for results computed without gradients.
  std::string detached(const at::Tensor& tensor, const std::string& value);

  static const void* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

 private:
  ProgramArgument constant(const at::Tensor& tensor);
  // Returns the latest value with the memory, sizes and strides of a tensor; empty if there is none.
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

// Records the operators that this thread calls during its lifetime, above autograd and autocast: composites
// such as layer_norm stay whole. One at a time per thread.
class ForwardRecorder {
 public:
  // `weights` are a model's parameters and buffers with their names. Throws Error if recording is impossible:
  // another library uses the dispatch key, or this thread already records.
  ForwardRecorder(ForwardRecording& recording, const NamedTensors& weights, const Batch& inputs);
  ~ForwardRecorder();
  ForwardRecorder(const ForwardRecorder&) = delete;
  ForwardRecorder& operator=(const ForwardRecorder&) = delete;

  // Ends the recording with the outputs of the forward pass. Throws Error with the operator and layer if it
  // cannot become a program.
  void finish(const Batch& outputs);
  // Throws the error that finish() would throw.
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
  std::string layer_;                                               // the last one whose weights were used
  std::optional<ErrorParts> refusal_;
  bool trains_;
  bool call_learns_ = false;                                          // the call being recorded
  std::vector<std::pair<at::Tensor, std::string>> detached_results_;  // its results without gradients
  std::uint64_t other_thread_calls_;
  std::optional<c10::impl::IncludeDispatchKeyGuard> listening_;
};

}  // namespace kindling
