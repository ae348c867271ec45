#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

namespace kindling {

// Returns the bytes of a regular file; nothing if it is missing, larger, of another kind or cannot be read.
// For lists of many files, which none of them may stop; read_file() reports errors instead.
std::optional<std::string> small_file(const std::filesystem::path& path, std::size_t max_bytes);

// Returns the last lines of a regular file, `max_bytes` at most and beginning with a whole line; empty as
// above. Drops an incomplete last line.
std::string end_of_file(const std::filesystem::path& path, std::size_t max_bytes);

}  // namespace kindling
