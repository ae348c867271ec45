#pragma once

#include <cstdint>
#include <vector>

#include "kindling/device/device_table.h"

namespace kindling {

// Sets the `device` of each GPU in the CUDA driver's numbering for this process, or the reason why it cannot
// be used. `num_usable` GPUs can be used. If this process has not initialised the driver, this function does
// not do so either, and no GPU gets a device.
void assign_ordinals(std::vector<GpuInfo>& cards, std::int64_t num_usable,
                     const char* library = "libcuda.so.1");

}  // namespace kindling
