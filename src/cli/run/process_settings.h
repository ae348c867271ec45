#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/config/run_options.h"

namespace kindling {

// Settings of the whole process, which the program changes and the library never does.

// Call before the first operator. Warns if it is too late for MKL.
void apply(const ProcessOptions& options);

// Returns whether MKL uses its fast kernels, as fast_mkl_text(); makes MKL choose them.
std::string chosen_mkl_kernels();

// True if the address space of the process is limited (ulimit -v).
bool has_memory_limit();

// Call at the very start of the program: keeps memory that operators free in the process, so that the next
// step does not need its pages mapped and cleared again, and reuses it for blocks of the same size.
void keep_freed_memory();

// From now on, returns large blocks of host memory to the system when they are freed. Otherwise they are kept
// in pieces that a batch of another size does not fit in.
void keep_memory_compact();

// Describes where the program runs, one line each: versions, libraries, the CPU, memory and GPUs.
std::vector<std::pair<std::string, std::string>> environment_facts();

}  // namespace kindling
