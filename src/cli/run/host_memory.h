#pragma once

namespace kindling {

// Whether the process may have only so many bytes of addresses (ulimit -v).
bool has_memory_limit();

// At the very start of the program: memory that operators free stays with the process, so that the next step
// need not have its pages mapped and cleared again.
void keep_freed_memory();

// From now on large blocks of host memory go back to the system when they are freed. What is kept otherwise
// is in pieces that a batch of another size does not fit in.
void keep_memory_compact();

}  // namespace kindling
