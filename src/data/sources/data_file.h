#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace kindling {

// Throws ConfigError for an empty path, DataError unless the file exists. `key`: the option of [data] that
// names it; `kind`: "a CSV file".
void require_data_file(const std::filesystem::path& path, const char* key, const char* kind);

// Returns a hint for missing files of a data set that `kindling data fetch` knows. `root`: the directory that
// the user has chosen.
std::string how_to_fetch(const std::string& name, const std::optional<std::filesystem::path>& root);

}  // namespace kindling
