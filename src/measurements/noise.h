#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kindling/device/device.h"

namespace kindling {

// Evenly distributed numbers from -1 to 1, made on the device by a generator of its own: the process-wide
// random state stays as it is. The same seed gives the same numbers on the same kind of device.
at::Tensor noise(const std::vector<std::int64_t>& shape, at::TensorOptions options, std::uint64_t seed);

}  // namespace kindling
