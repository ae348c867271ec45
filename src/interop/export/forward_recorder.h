#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/tensors/batch.h"
#include "programs/forward_recording.h"
#include "programs/recorded_values.h"

namespace kindling {

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
  RecordedCall begun(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
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
  std::vector<std::pair<at::Tensor, std::string>> late_detached_;  // its results without gradients
  std::uint64_t calls_elsewhere_;
  std::optional<c10::impl::IncludeDispatchKeyGuard> listening_;
};

}  // namespace kindling
