#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kindling/data/split.h"

namespace kindling {

// Logs a warning if training samples have classes that no validation sample has, unless there are only a few
// samples. `classes`: one per sample, indices of `names` if there are names. `place` begins the message.
void warn_of_unvalidated_classes(const std::vector<std::int64_t>& classes, const SplitIndices& split,
                                 const std::vector<std::string>& names, bool is_stratified,
                                 const std::string& place);

}  // namespace kindling
