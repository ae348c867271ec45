#pragma once

#include <cstdint>
#include <vector>

#include "kindling/metrics/epoch_log.h"

namespace kindling {

struct EpochLog::Sums {
  std::size_t column;
  at::Tensor on_device;  // float64 [2, numbers]: the committed sums, and what has been added since
  std::vector<std::int64_t> rows{};  // that have added to it, including the current one
  at::Tensor on_host{};              // undefined until it has been moved
};

}  // namespace kindling
