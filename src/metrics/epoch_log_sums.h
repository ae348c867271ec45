#pragma once

#include <cstdint>
#include <vector>

#include "kindling/metrics/epoch_log.h"

namespace kindling {

struct EpochLog::Sums {
  std::size_t column;
  at::Tensor on_device;              // float64 [2, numbers]: settled, and what has come since
  std::vector<std::int64_t> rows{};  // that have added to it, with the one that is being made
  at::Tensor on_host{};              // undefined until it has been moved
};

}  // namespace kindling
