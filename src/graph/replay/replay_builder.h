#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "graph/kernels/native_kernel.h"
#include "graph/nodes/replay_node.h"
#include "graph/recording/operator_effects.h"
#include "graph/recording/recording.h"
#include "graph/replay/memory_plan.h"

namespace kindling {

// Builds the parts of a replay: tensors for the layouts of a recording, and nodes for its calls.
class ReplayBuilder {
 public:
  ReplayBuilder(const Recording& recording, NativeKernels kernels);

  // The candidate nodes for a call, nullptr where there is none. A call without any node only allocates
  // memory.
  struct Nodes {
    std::size_t call;
    std::unique_ptr<ReplayNode> native{};   // used if its results are bit-identical
    std::unique_ptr<ReplayNode> writing{};  // writes results directly, if the operator turns out to do so
    std::unique_ptr<ReplayNode> making{};
    std::vector<at::Tensor> results{};
    std::vector<std::size_t> made{};  // storages
  };
  std::vector<Nodes> nodes();

  const Recording& recording() const noexcept { return recording_; }
  const c10::Storage& storage(std::size_t number) const { return storages_[number]; }
  // Returns external memory that calls write to, each once.
  std::vector<at::Tensor> changed();
  // Memory of a result, and the calls that need it.
  struct Result {
    std::size_t storage;
    MemoryNeed need;
  };
  std::vector<Result> intermediates() const { return all_results(/*are_outputs=*/false); }
  std::vector<Result> outputs() const { return all_results(/*are_outputs=*/true); }

  at::Tensor tensor(std::int64_t place);  // undefined for OperatorValue::kUndefined

 private:
  void share_copies();
  void share_copy(std::size_t call);
  bool touches(std::size_t call, std::size_t storage) const;
  bool is_whole(const TensorLayout& place) const;
  c10::IValue argument(const OperatorValue& value);
  torch::jit::Stack arguments(const OperatorCall& call);
  std::vector<at::Tensor> results(const OperatorCall& call);
  Nodes nodes_of(std::size_t call);
  std::vector<Result> all_results(bool are_outputs) const;

  const Recording& recording_;
  NativeKernels kernels_;
  std::vector<OperatorEffects> effects_;
  std::vector<bool> is_needed_, is_output_;
  std::vector<std::size_t> shared_with_;  // by storage: the storage whose memory it uses
  std::vector<c10::Storage> storages_;
  std::vector<at::Tensor> tensors_;  // by place
};

}  // namespace kindling
