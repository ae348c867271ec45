#include "graph/replay_node.h"

#include <c10/util/Exception.h>

namespace kindling {
namespace {

// Plain tensors in host memory have no other key, and nothing above it is wanted.
constexpr c10::DispatchKeySet kKernels(c10::DispatchKey::CPU);

}  // namespace

void WritingNode::run() {
  stack_.assign(arguments_.begin(), arguments_.end());
  op_.redispatchBoxed(kKernels, &stack_);
  stack_.clear();
}

void MakingNode::run() {
  stack_.assign(arguments_.begin(), arguments_.end());
  op_.redispatchBoxed(kKernels, &stack_);
  std::size_t next = 0;
  for (const c10::IValue& result : stack_) {
    if (result.isTensor()) {
      adopt(result.toTensor(), results_[next++]);
    } else if (result.isTensorList()) {
      for (const at::Tensor& tensor : result.toTensorVector()) adopt(tensor, results_[next++]);
    } else {
      ++next;
    }
  }
  stack_.clear();
}

void MakingNode::adopt(const at::Tensor& result, const at::Tensor& recorded) {
  if (!recorded.defined()) return;
  const bool is_alike = result.defined() && result.sizes() == recorded.sizes() &&
                        result.strides() == recorded.strides() && result.dtype() == recorded.dtype() &&
                        result.storage_offset() == 0 && result.storage().use_count() == 1;
  TORCH_CHECK(is_alike, "a result is not what was recorded");
  recorded.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
      std::move(result.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks()));
}

}  // namespace kindling
