#pragma once

#include <cstdint>
#include <vector>

#include "kindling/device/device_table.h"

namespace kindling {

// Gives each card its `device`, as the CUDA driver counts in this process, or says why it cannot be used.
// `num_usable` cards can be. A driver that this process has not started is not started here, and offers none.
void assign_ordinals(std::vector<GpuInfo>& cards, std::int64_t num_usable,
                     const char* library = "libcuda.so.1");

}  // namespace kindling
