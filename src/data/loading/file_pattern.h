#pragma once

#include <filesystem>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// True for a path with * or ? that is not the name of a file.
KINDLING_API bool is_file_pattern(const std::filesystem::path& path);

// Returns the files of a pattern (matches()) in the order of their paths as texts; each directory of the path
// may be a pattern, too. Hidden files match only patterns that begin with a dot. Another path is returned as
// it is. Throws DataError if no file matches.
KINDLING_API std::vector<std::filesystem::path> files_of(const std::filesystem::path& pattern);

// True if files_of() the pattern returns the file once it exists; false for a path that is not a pattern.
KINDLING_API bool belongs_to_pattern(const std::filesystem::path& file, const std::filesystem::path& pattern);

}  // namespace kindling
