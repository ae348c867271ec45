#pragma once

#include <torch/nn/module.h>

#include <utility>

namespace kindling {

// Marks this part of a model, for the object's lifetime, as being computed on this thread under an activation
// checkpoint: everything that it depends on must be within it.
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
