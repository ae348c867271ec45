#pragma once

#include <filesystem>
#include <vector>

#include "data/loading/array_source.h"

namespace kindling {

// Joins the arrays of several files along their samples, in the order of the files, by their names. Each has
// one list of arrays. Throws DataError that names two files whose arrays have other types or other shapes of
// samples, and for a file without one of the arrays. `pattern`: of the files, for messages.
std::vector<SourceArray> joined_arrays(std::vector<std::vector<SourceArray>> files,
                                       const std::filesystem::path& pattern);

}  // namespace kindling
