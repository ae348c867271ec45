#pragma once

#include <filesystem>

namespace kindling {

// Makes files created, renamed and deleted in the directory survive a power loss. Throws Error.
void sync_folder(const std::filesystem::path& folder);

// Creates the directory durably unless it exists. Its parent must exist. Throws Error.
void make_folder(const std::filesystem::path& folder);

// Returns the directory of a file: "." for a bare name.
std::filesystem::path folder_of(const std::filesystem::path& file);

}  // namespace kindling
