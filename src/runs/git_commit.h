#pragma once

#include <filesystem>
#include <string>

#include "kindling/base/export.h"

namespace kindling {

// What is checked out in a git repository. Says nothing about files that were changed since that commit.
struct GitCommit {
  std::string commit{};  // hexadecimal; empty: no commit yet, or it cannot be read
  std::string branch{};  // "main"; empty: a detached HEAD, or it cannot be read
};

// Returns the commit of the repository that contains the file `config` or, if it is in none or empty, of the
// one that contains the current directory. Reads the files of .git (also those of worktrees and submodules)
// and never runs git. Returns empty texts outside of repositories, and for files that are damaged or have
// another format (reftable). Never throws.
KINDLING_API GitCommit git_commit_of_project(const std::filesystem::path& config) noexcept;

}  // namespace kindling
