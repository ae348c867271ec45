#pragma once

#include "kindling/base/export.h"

namespace kindling {

// The number of threads of LibTorch's operators while this lives, for the whole process and the calling
// thread above all; what it was comes back at the end.
class KINDLING_API OperatorThreads {
 public:
  explicit OperatorThreads(int count);
  ~OperatorThreads();
  OperatorThreads(const OperatorThreads&) = delete;
  OperatorThreads& operator=(const OperatorThreads&) = delete;

 private:
  int before_;
};

}  // namespace kindling
