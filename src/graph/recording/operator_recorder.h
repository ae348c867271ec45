#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <string_view>
#include <vector>

#include "graph/recording/recording.h"

namespace kindling {

// Records what operators this thread calls while it lives, below autograd and autocast, forward and backward
// alike. One at a time and thread; another one within makes that of the outer one no recording to be
// replayed.
class OperatorRecorder {
 public:
  explicit OperatorRecorder(Recording& recording);
  ~OperatorRecorder();
  OperatorRecorder(const OperatorRecorder&) = delete;
  OperatorRecorder& operator=(const OperatorRecorder&) = delete;

  // Returns why operators cannot be recorded; empty if they can. Logs one warning per process if they cannot.
  static std::string why_not();
  // For work whose operators are not all of it: a recording of it, if one is made, is not to be replayed.
  static void refuse(std::string_view reason);

 private:
  static void record(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);
  void add(const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack& stack);

  void look_at_blanks(const c10::OperatorHandle& op, const std::vector<OperatorValue>& arguments,
                      const torch::jit::Stack& stack);

  static thread_local OperatorRecorder* current_;
  Recording& recording_;
  OperatorRecorder* outer_;
  std::uint64_t calls_elsewhere_;
  c10::impl::IncludeDispatchKeyGuard listening_;
};

}  // namespace kindling
