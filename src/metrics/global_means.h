#pragma once

#include <optional>

#include "kindling/distributed/process_group.h"
#include "kindling/metrics/epoch_log.h"

namespace kindling {

// The means of a log, of all processes together (nullptr: of this one alone): the same numbers everywhere, in
// the order of the first process that has one. See EpochLog::means(). Throws DistributedError where a metric
// has other sums in another process.
NamedValues global_means(const EpochLog& log, ProcessGroup* group, std::optional<std::size_t> left_out = {});

}  // namespace kindling
