#pragma once

#include "protocol.h"

namespace kindling_bench {

// What a step costs when something grows, one variant each: the steps of an epoch (steps/100 … 1000000), the
// samples of the data (samples/6000 … 600000), the tensors that a million parameters are made of (tensors/4 …
// 1000), the batches of a window of accumulation (accumulate/1 … 64).
void growth(const Options& options);

}  // namespace kindling_bench
