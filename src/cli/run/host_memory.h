#pragma once

namespace kindling {

// True if the address space of the process is limited (ulimit -v).
bool has_memory_limit();

// Call at the very start of the program: keeps memory that operators free in the process, so that the next
// step does not need its pages mapped and cleared again.
void keep_freed_memory();

// From now on, returns large blocks of host memory to the system when they are freed. Otherwise they are kept
// in pieces that a batch of another size does not fit in.
void keep_memory_compact();

}  // namespace kindling
