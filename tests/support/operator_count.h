// Counts calls of LibTorch's operators.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <memory>

namespace kindling {

// Counts calls on the thread that creates it during its lifetime, including operators called by operators.
class OperatorCount {
 public:
  OperatorCount()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(&count).scopes({at::RecordScope::FUNCTION}))) {}
  ~OperatorCount() { at::removeCallback(handle_); }
  OperatorCount(const OperatorCount&) = delete;
  OperatorCount& operator=(const OperatorCount&) = delete;

  // The total of this thread so far, by all counters.
  static std::int64_t now() { return num_calls_; }

 private:
  static std::unique_ptr<at::ObserverContext> count(const at::RecordFunction&) {
    ++num_calls_;
    return nullptr;
  }

  static inline thread_local std::int64_t num_calls_ = 0;
  at::CallbackHandle handle_;
};

}  // namespace kindling
