#pragma once

#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>

#include "kindling/base/export.h"
#include "kindling/base/file.h"

namespace kindling {

// A locked run directory.
struct RunClaim {
  std::filesystem::path run;
  FolderLock lock;
  bool is_reused = false;  // a killed run has left files in it
};

struct RunClaimOptions {
  bool may_reuse = false;  // the newest directory if its run was killed before its first checkpoint and epoch
  std::string remedy = "choose another directory";  // if none can be created
};

// Creates and locks the directory with the next free number in `runs`, or reuses the newest one. What is
// created survives a power loss. Several processes and threads may call it at once. Throws Error if no
// directory can be created or written.
KINDLING_API RunClaim claim_run(const std::filesystem::path& runs, const RunClaimOptions& options = {});

// Returns the run with the largest number, if there is one.
KINDLING_API std::optional<std::filesystem::path> newest_run(const std::filesystem::path& dir,
                                                             const std::string& name);
// Returns the directory with the largest number in `runs` that contains one of the files. A start that was
// killed or refused may have left later directories without them.
KINDLING_API std::optional<std::filesystem::path> newest_run_with(const std::filesystem::path& runs,
                                                                  std::initializer_list<const char*> files);
// Returns a text from run.json; empty if it is missing or cannot be read.
KINDLING_API std::string run_text(const std::filesystem::path& run, const char* key);

}  // namespace kindling
