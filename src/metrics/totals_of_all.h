#pragma once

#include <vector>

#include "kindling/distributed/process_group.h"
#include "kindling/metrics/logged_values.h"

namespace kindling {

// Those of all processes added up, in the order of the first process that has one; the same numbers
// everywhere. Throws DistributedError where a metric has other sums in another process.
std::vector<NamedTotal> totals_of_all(const std::vector<NamedTotal>& own, ProcessGroup& group);

}  // namespace kindling
