#pragma once

#include "workloads.h"

namespace kindling_bench {

// Measures the epochs of one long fit.
void train(const Options& options, const Workload& workload);

}  // namespace kindling_bench
