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

// For its lifetime, activation checkpoints on this thread compute their parts directly, so that code that
// inspects the operators of a forward sees them.
class WithoutCheckpoints {
 public:
  WithoutCheckpoints() : former_(std::exchange(is_on_, true)) {}
  ~WithoutCheckpoints() { is_on_ = former_; }
  WithoutCheckpoints(const WithoutCheckpoints&) = delete;
  WithoutCheckpoints& operator=(const WithoutCheckpoints&) = delete;

  static bool is_on() noexcept { return is_on_; }

 private:
  inline static thread_local bool is_on_ = false;
  bool former_;
};

}  // namespace kindling
