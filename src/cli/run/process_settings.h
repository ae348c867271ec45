#pragma once

#include <string>

#include "cli/config/run_options.h"

namespace kindling {

// Settings of the whole process, which the program changes and the library never does.

// Call before the first operator. Warns if it is too late for MKL.
void apply(const ProcessOptions& options);

// Returns whether MKL uses its fast kernels, as fast_mkl_text(); makes MKL choose them.
std::string chosen_mkl_kernels();

}  // namespace kindling
