#pragma once

#include <cstdint>

#include "kindling/base/export.h"
#include "kindling/device/device.h"

namespace kindling {

// How much of a device's memory is in use now.
//
// For a GPU: what LibTorch's allocator holds in this process. A tensor takes its requested size, rounded up
// by the allocator (on CUDA to 512 bytes); freed memory stays reserved for the next tensor.
//
// For the CPU, where tensors are not counted: both `allocated_bytes` and `reserved_bytes` are the resident
// bytes of this process, whatever holds them. Small tensors do not show; large ones show once they have been
// written.
struct DeviceMemory {
  std::int64_t allocated_bytes = 0;  // in tensors
  std::int64_t reserved_bytes = 0;   // taken from the system, in tensors or cached for them
  std::int64_t free_bytes = 0;       // not in use by any process
  std::int64_t total_bytes = 0;
};

// Returns 0 for values that are not available. Does not wait. Throws DeviceError for a GPU that cannot be
// used.
KINDLING_API DeviceMemory device_memory(Device device);

}  // namespace kindling
