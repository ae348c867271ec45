#pragma once

#include <filesystem>

namespace kindling {

// Throws DataError unless the file exists. `key`: the option of [data] that names it; `kind`: "a CSV file".
void require_data_file(const std::filesystem::path& path, const char* key, const char* kind);

}  // namespace kindling
