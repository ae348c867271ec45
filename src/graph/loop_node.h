#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "graph/replay_node.h"

namespace kindling {

// In larger tensors LibTorch's preparations are nothing beside the work, for which it may use several
// threads.
constexpr std::int64_t kMostElements = 32767;

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

}  // namespace kindling
