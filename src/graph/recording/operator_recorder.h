#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <string_view>
#include <vector>

#include "graph/recording/recording.h"

namespace kindling {

// Records the operators that this thread calls while the recorder exists, below autograd and autocast,
// forward and backward alike. One per thread at a time: a nested recorder makes the outer recording unusable
// for a replay.
class OperatorRecorder {
 public:
  explicit OperatorRecorder(Recording& recording);
  ~OperatorRecorder();
  OperatorRecorder(const OperatorRecorder&) = delete;
  OperatorRecorder& operator=(const OperatorRecorder&) = delete;

  // Returns why operators cannot be recorded; empty if they can. Logs one warning per process if they cannot.
  static std::string capture_obstacle();
  // Marks the current recording, if any, as unusable for a replay, because operators are only a part of the
  // work.
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
