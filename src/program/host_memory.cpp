#include "program/host_memory.h"

#include <malloc.h>
#include <sys/resource.h>

namespace kindling {

bool has_memory_limit() {
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

void keep_memory_compact() {
#ifdef __GLIBC__
  constexpr int kLargeBytes = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, kLargeBytes);  // which otherwise grows with the blocks that are freed
#endif
}

}  // namespace kindling
