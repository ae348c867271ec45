#pragma once

#include <cstdint>

namespace kindling_bench {

// By how much the resident memory of this process has grown at its peak since this was made. One at a time.
class PeakMemory {
 public:
  PeakMemory();  // throws kindling::Error if Linux does not let it reset the counter
  double bytes() const;

 private:
  std::int64_t start_bytes_;
};

}  // namespace kindling_bench
