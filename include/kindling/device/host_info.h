#pragma once

#include <cstdint>
#include <string>

#include "kindling/base/export.h"

namespace kindling {

// The CPU of the machine. Values that are not available are empty or 0.
struct HostInfo {
  std::string cpu_model{};
  std::int64_t num_cores = 0;    // that this process may use
  std::int64_t num_threads = 0;  // of LibTorch's operators
  std::int64_t memory_total_bytes = 0;
  std::int64_t memory_available_bytes = 0;
};

// Reads the values again in every call.
KINDLING_API HostInfo host_info();

}  // namespace kindling
