// Collectives for tensors of the fake accelerator, between processes or threads that act as ranks: over the
// store of their group, with a kernel that neither copies to the host nor makes it wait.
#pragma once

#include <cstdint>

namespace kindling::fake {

// How often they were begun since the start, in all processes that are threads of this one.
struct CollectiveCounts {
  std::int64_t all_reduces = 0, broadcasts = 0;
};
CollectiveCounts collective_counts();

// Lets process groups use them from now on; later calls do nothing.
void install_collectives();

}  // namespace kindling::fake
