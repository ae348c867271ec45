#pragma once

#include <utility>

namespace kindling {

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
