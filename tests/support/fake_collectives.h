// What adds up the fake accelerator's tensors between processes, or threads that stand for some: over the
// store of their group, and with its own kernel, which neither copies to the host nor lets it wait.
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
