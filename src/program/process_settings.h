#pragma once

#include <string>

#include "program/run_options.h"

namespace kindling {

// What the program, and never the library, sets for the whole process.

// At the very start: memory that operators free stays with the process, so that the next step need not have
// its pages mapped and cleared again.
void keep_freed_memory();

// Before the first operator. Tells the log when it comes too late for MKL.
void apply(const ProcessOptions& options);

// Whether MKL takes its fast kernels, as fast_mkl_text(); makes MKL choose.
std::string chosen_mkl_kernels();

}  // namespace kindling
