#pragma once

#include <cstdint>

#include "kindling/base/export.h"
#include "kindling/device/device.h"

namespace kindling {

// How much of a device's memory is in use, now.
//
// Of a card: what LibTorch's allocator has in this process. A tensor takes what was asked for, rounded up by
// the allocator (on CUDA to 512 bytes); what is given back stays reserved for the next tensor.
//
// Of the CPU, where nobody counts the tensors: both `allocated_bytes` and `reserved_bytes` are the resident
// bytes of this process, whatever holds them. Small tensors do not show, large ones show once they have been
// written.
struct DeviceMemory {
  std::int64_t allocated_bytes = 0;  // in tensors
  std::int64_t reserved_bytes = 0;   // taken from the system, in tensors or ready for them
  std::int64_t free_bytes = 0;       // that no process has taken
  std::int64_t total_bytes = 0;
};

// 0 where a value cannot be told. Waits for nothing. Throws DeviceError for a card that cannot be used.
KINDLING_API DeviceMemory device_memory(Device device);

}  // namespace kindling
