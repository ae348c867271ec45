#pragma once

#include <filesystem>

#include "kindling/base/export.h"
#include "kindling/base/file.h"

namespace kindling {

// Makes files created, renamed and deleted in the directory survive a power loss. Throws Error.
void sync_folder(const std::filesystem::path& folder);

// Creates the directory durably unless it exists. Its parent must exist. Throws Error.
void make_folder(const std::filesystem::path& folder);

// The same, and creates its parents too: each created directory survives a power loss.
KINDLING_API void create_folders_durably(const std::filesystem::path& folder);

// Creates a directory durably. Returns false if something of this name exists. Throws Error.
KINDLING_API bool create_new_folder_durably(const std::filesystem::path& folder);

// Returns whether a process has the FolderLock of the directory. Writes nothing. False if the lock file does
// not exist or cannot be read.
KINDLING_API bool is_folder_locked(const std::filesystem::path& folder) noexcept;

// Locks the directory once no other process has its lock. Throws Error if it is still locked after
// `timeout_ms`.
KINDLING_API FolderLock lock_folder_within(const std::filesystem::path& folder, int timeout_ms);

// Returns the directory of a file: "." for a bare name.
std::filesystem::path folder_of(const std::filesystem::path& file);

}  // namespace kindling
