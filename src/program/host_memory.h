#pragma once

namespace kindling {

// Whether the process may have only so many bytes of addresses (ulimit -v).
bool has_memory_limit();

// From now on large blocks of host memory go back to the system when they are freed. By itself the C library
// keeps those up to 32 MiB, in pieces that a batch of another size does not fit in.
void keep_memory_compact();

}  // namespace kindling
