#pragma once

#include <string>

#include "cli/config/run_options.h"

namespace kindling {

// What the program, and never the library, sets for the whole process.

// Before the first operator. Tells the log when it comes too late for MKL.
void apply(const ProcessOptions& options);

// Whether MKL takes its fast kernels, as fast_mkl_text(); makes MKL choose.
std::string chosen_mkl_kernels();

}  // namespace kindling
