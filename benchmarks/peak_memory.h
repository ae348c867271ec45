#pragma once

#include <cstdint>

namespace kindling_bench {

// Measures the peak growth of this process's resident memory since construction. One at a time.
class PeakMemory {
 public:
  PeakMemory();  // throws kindling::Error if Linux does not reset the peak
  double bytes() const;

 private:
  std::int64_t start_bytes_;
};

}  // namespace kindling_bench
