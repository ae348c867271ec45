#pragma once

#include <ATen/Parallel.h>

#include <cstdint>

namespace kindling {

// More of them exhaust the memory of many systems, which ends the process.
inline constexpr std::int64_t kMaxOperatorThreads = 1024;

// Sets the number of threads of LibTorch's operators for its lifetime, for the whole process and in
// particular the calling thread; the destructor restores it.
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
