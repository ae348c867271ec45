#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace kindling {

// One call of a replay. Its tensors are the same in every run.
class ReplayNode {
 public:
  virtual ~ReplayNode() = default;
  virtual void run() = 0;
};

// An operator that writes its results directly into their final tensors: in place or as `out`.
class OutVariantNode : public ReplayNode {
 public:
  OutVariantNode(const c10::OperatorHandle& op, torch::jit::Stack arguments)
      : op_(op), arguments_(std::move(arguments)) {}
  void run() override;

 private:
  c10::OperatorHandle op_;
  torch::jit::Stack arguments_, stack_;
};

// An operator that allocates its results: the captured tensors take over their memory.
class FunctionalNode : public ReplayNode {
 public:
  // `results`: a flat list; undefined ones are not needed.
  FunctionalNode(const c10::OperatorHandle& op, torch::jit::Stack arguments, std::vector<at::Tensor> results)
      : op_(op), arguments_(std::move(arguments)), results_(std::move(results)) {}
  // Throws c10::Error for a result that differs in kind from the captured one.
  void run() override;

 private:
  void adopt(const at::Tensor& result, const at::Tensor& recorded) const;

  c10::OperatorHandle op_;
  torch::jit::Stack arguments_, stack_;
  std::vector<at::Tensor> results_;
};

void take_memory(const c10::Storage& storage);
void forget_memory(const c10::Storage& storage);

// Allocates or releases the memory of other nodes.
class MemoryNode : public ReplayNode {
 public:
  using Change = void (*)(const c10::Storage&);
  MemoryNode(Change change, std::vector<c10::Storage> storages)
      : change_(change), storages_(std::move(storages)) {}
  void run() override {
    for (const c10::Storage& storage : storages_) change_(storage);
  }

 private:
  Change change_;
  std::vector<c10::Storage> storages_;
};

}  // namespace kindling
