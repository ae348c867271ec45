#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "graph/out_operator.h"
#include "graph/replay_node.h"

namespace kindling {

// In larger tensors LibTorch's preparations are nothing beside the work, for which it may use several
// threads.
constexpr std::int64_t kMostElements = 32767;
// Whether a loop of our own, on this thread alone, is as fast as LibTorch's with all that it may use.
// `times`: as its with one.
inline bool is_fast_alone(std::int64_t num_elements, int times) {
  return num_elements <= kMostElements || at::get_num_threads() <= times;
}

// The elements of a tensor of a replay, whose memory may be another one in each run.
class Elements {
 public:
  explicit Elements(const at::Tensor& tensor)
      : storage_(tensor.storage()), offset_(tensor.storage_offset()) {}
  template <class T = float>
  T* data() const {
    return static_cast<T*>(storage_.unsafeGetStorageImpl()->mutable_data()) + offset_;
  }

 private:
  c10::Storage storage_;
  std::int64_t offset_;
};

// A node that is a loop of our own.
template <class Run>
class LoopNode : public ReplayNode {
 public:
  explicit LoopNode(Run run) : run_(std::move(run)) {}
  void run() override { run_(); }

 private:
  Run run_;
};

template <class Run>
std::unique_ptr<ReplayNode> loop_node(Run run) {
  return std::make_unique<LoopNode<Run>>(std::move(run));
}

// The operator itself, for numbers that a loop of our own leaves to it.
inline std::optional<WritingNode> writing_node(const c10::OperatorHandle& op, torch::jit::Stack arguments,
                                               const std::vector<at::Tensor>& results) {
  const auto out = out_operator(op);
  if (!out) return std::nullopt;
  arguments.insert(arguments.end(), results.begin(), results.end());
  return WritingNode(*out, std::move(arguments));
}

}  // namespace kindling
