#include "graph/nodes/replay_node.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

namespace kindling {
namespace {

// Plain tensors in host memory have no other key, and the keys above it are not needed.
constexpr c10::DispatchKeySet kKernels(c10::DispatchKey::CPU);

// Holds the arguments of a call and then its results, and releases them at the end, even after an exception.
class FilledStack {
 public:
  FilledStack(torch::jit::Stack& stack, const torch::jit::Stack& arguments) : stack_(stack) {
    stack_.assign(arguments.begin(), arguments.end());
  }
  ~FilledStack() { stack_.clear(); }
  FilledStack(const FilledStack&) = delete;
  FilledStack& operator=(const FilledStack&) = delete;

 private:
  torch::jit::Stack& stack_;
};

}  // namespace

void OutVariantNode::run() {
  const FilledStack filled(stack_, arguments_);
  op_.redispatchBoxed(kKernels, &stack_);
}

void FunctionalNode::run() {
  const FilledStack filled(stack_, arguments_);
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
}

void FunctionalNode::adopt(const at::Tensor& result, const at::Tensor& recorded) const {
  if (!recorded.defined()) return;
  TORCH_CHECK(result.defined() && result.sizes() == recorded.sizes() && result.dtype() == recorded.dtype(),
              op_.schema().name(), " returns a different kind of result than before");
  c10::StorageImpl& memory = *recorded.storage().unsafeGetStorageImpl();
  const bool is_same_view = result.is_conj() == recorded.is_conj() && result.is_neg() == recorded.is_neg();
  if (is_same_view && result.strides() == recorded.strides() && result.storage_offset() == 0 &&
      result.storage().nbytes() == memory.nbytes() && result.storage().use_count() == 1) {
    memory.set_data_ptr_noswap(
        std::move(result.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks()));
    return;
  }
  // A part of other memory, or memory with another owner.
  if (memory.data() == nullptr) take_memory(recorded.storage());
  recorded.copy_(result);
}

void take_memory(const c10::Storage& storage) {
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(c10::GetCPUAllocator()->allocate(storage.nbytes()));
}

void forget_memory(const c10::Storage& storage) {
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(nullptr, at::kCPU));
}

}  // namespace kindling
