#pragma once

#include <torch/nn/module.h>

#include <utility>

namespace kindling {

// While it lives, this part of a model is computed on this thread under an activation checkpoint: what it
// hangs on must lie within it.
class PartAtWork {
 public:
  explicit PartAtWork(const torch::nn::Module& part) : former_(std::exchange(innermost_, &part)) {}
  ~PartAtWork() { innermost_ = former_; }
  PartAtWork(const PartAtWork&) = delete;
  PartAtWork& operator=(const PartAtWork&) = delete;

  static const torch::nn::Module* innermost() noexcept { return innermost_; }  // nullptr: none

 private:
  inline static thread_local const torch::nn::Module* innermost_ = nullptr;
  const torch::nn::Module* former_;
};

}  // namespace kindling
