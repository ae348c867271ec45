#pragma once

#include <optional>

#include "kindling/distributed/process_group.h"
#include "kindling/metrics/epoch_log.h"

namespace kindling {

// The internal columns of a log with the number of rows whose outputs have a NaN, by stage.
inline constexpr const char* kNanRowsColumns[] = {"train outputs with NaN", "val outputs with NaN",
                                                  "test outputs with NaN"};

// Returns the means of a log over all ranks (nullptr: of this one only): the same numbers everywhere, in the
// order of the first rank that has one. See EpochLog::means(). Throws DistributedError if the sums of a
// metric differ in number between ranks.
NamedValues global_means(const EpochLog& log, ProcessGroup* group, std::optional<std::size_t> left_out = {});

}  // namespace kindling
