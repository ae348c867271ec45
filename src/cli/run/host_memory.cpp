#include "cli/run/host_memory.h"

#include <malloc.h>
#include <sys/resource.h>

#include <limits>

namespace kindling {
namespace {

// Setting one of these values also disables glibc's automatic tuning of both.
void set_limits([[maybe_unused]] int mapped_from, [[maybe_unused]] int trimmed_from) {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, mapped_from);
  mallopt(M_TRIM_THRESHOLD, trimmed_from);
#endif
}

}  // namespace

bool has_memory_limit() {
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

// By default, glibc maps and unmaps blocks of at least 128 KiB on each use, at two page faults per 8 KiB; 32
// MiB is the largest threshold that it accepts.
void keep_freed_memory() { set_limits(32 << 20, std::numeric_limits<int>::max()); }

void keep_memory_compact() { set_limits(1 << 20, 1 << 20); }

}  // namespace kindling
