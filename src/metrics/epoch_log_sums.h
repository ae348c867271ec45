#pragma once

#include <cstdint>
#include <vector>

#include "kindling/metrics/epoch_log.h"

namespace kindling {

struct EpochLog::Sums {
  std::size_t column;
  // float64 [2, numbers]: the committed sums, and what has been added since. For a metric that keeps samples:
  // memory for their rows, float32 or float64 [capacity, …].
  at::Tensor on_device;
  std::vector<std::int64_t> rows{};  // that have added to it, including the current one
  at::Tensor on_host{};              // undefined until it has been moved; samples stay on the device
  bool keeps_samples = false;
  std::int64_t num_samples = 0, num_committed = 0;  // if it keeps samples

  at::Tensor samples() const { return on_device.narrow(0, 0, num_samples); }
  void add_samples(const at::Tensor& part);
};

}  // namespace kindling
