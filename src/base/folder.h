#pragma once

#include <filesystem>

namespace kindling {

// What has been made, renamed and deleted in the folder survives a power loss. Throws Error.
void sync_folder(const std::filesystem::path& folder);

// Makes the folder, which survives a power loss, unless it is there. Its parent must exist. Throws Error.
void make_folder(const std::filesystem::path& folder);

// The folder that a file lies in: "." for a name alone.
std::filesystem::path folder_of(const std::filesystem::path& file);

}  // namespace kindling
