#pragma once

#include "protocol.h"

namespace kindling_bench {

// Trains on a data set whose gather computes, or waits, as long as a step takes, without and with a worker,
// and reports the fraction of the training time that the steps waited for batches.
void gather_overlap(const Options& options);

}  // namespace kindling_bench
