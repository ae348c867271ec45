#pragma once

#include <ATen/Parallel.h>

namespace kindling {

// The number of threads of LibTorch's operators while this lives, for the whole process and the calling
// thread above all; what it was comes back at the end.
class OperatorThreads {
 public:
  explicit OperatorThreads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~OperatorThreads() { at::set_num_threads(before_); }
  OperatorThreads(const OperatorThreads&) = delete;
  OperatorThreads& operator=(const OperatorThreads&) = delete;

 private:
  int before_;
};

}  // namespace kindling
