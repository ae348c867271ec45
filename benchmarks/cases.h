#pragma once

#include "protocol.h"

namespace kindling_bench {

// Measures the case that the options name and prints its JSON lines (with --first-step: makes that step).
// Throws kindling::ConfigError for an unknown case.
void run_case(const Options& options);

}  // namespace kindling_bench
