#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kindling {

// Logs a warning about samples that data.on_broken skips, with the first of their errors. `samples` is what
// they are called: "rows".
void warn_of_skipped(const std::vector<std::string>& errors, std::size_t num_samples,
                     const std::string& samples);

}  // namespace kindling
