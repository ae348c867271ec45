#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kindling/device/device.h"

namespace kindling {

// Returns uniform numbers from -1 to 1, generated on the device by a separate generator, which leaves the
// process-wide random state unchanged. The same seed gives the same numbers on the same kind of device.
at::Tensor noise(const std::vector<std::int64_t>& shape, at::TensorOptions options, std::uint64_t seed);

}  // namespace kindling
