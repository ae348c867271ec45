#pragma once

#include <c10/core/Allocator.h>

#include "kindling/base/export.h"

namespace kindling {

// Allocates host memory by malloc, aligned like LibTorch's own allocator, which calls posix_memalign: glibc
// asks itself for more than the aligned block that it then keeps, so that a freed block is too small for the
// next one of its size, and the memory of a process grows by up to a half. Valid as long as the process.
KINDLING_API c10::Allocator& host_allocator();

}  // namespace kindling
