#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kindling/device/device.h"

namespace kindling {

// Returns the results of one round of work, which is the same each time.
using StressWork = std::function<std::vector<at::Tensor>()>;

// The result of repeating work on a device.
struct StressResult {
  std::int64_t num_rounds = 0;
  std::int64_t num_wrong = 0;    // rounds whose bits differ from those of the first one
  std::int64_t first_wrong = 0;  // the number of the first such round, counted from 1; 0: none
  double seconds = 0;
};

// Training steps of a small convolutional net in float32, and matmuls in float64: the loss, the gradients and
// the products. On a GPU, operators must be deterministic (DeterministicOperators).
StressWork stress_steps(Device device);
// Random numbers in `bytes` of memory, which are read again.
StressWork stress_memory(Device device, std::int64_t bytes);

// Runs the work at least twice and for about that many seconds, and compares the bits of each round with
// those of the first one.
StressResult stress(const StressWork& work, double seconds);

}  // namespace kindling
