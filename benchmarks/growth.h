#pragma once

#include "protocol.h"

namespace kindling_bench {

// Measures the cost of a step as something grows, one variant each: steps per epoch (steps/100 … 1000000),
// samples (samples/6000 … 600000), tensors of a million parameters (tensors/4 … 1000), and accumulated
// batches (accumulate/1 … 64).
void growth(const Options& options);

}  // namespace kindling_bench
