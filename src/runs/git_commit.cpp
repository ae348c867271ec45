#include "runs/git_commit.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <optional>
#include <string_view>

#include "kindling/base/file.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxGitLineBytes = 1 << 16, kMaxPackedBytes = std::size_t{1} << 26;
constexpr int kMostLinks = 5;  // of a reference that names another one

// The file's text; empty if there is no such regular file.
std::string text_of_file(const fs::path& file, std::size_t max_bytes) {
  std::error_code ignored;
  return fs::is_regular_file(file, ignored) ? read_file(file, max_bytes) : std::string();
}

// Files of one line may end with spaces.
std::string line_of_file(const fs::path& file) {
  std::string text = text_of_file(file, kMaxGitLineBytes);
  text.erase(std::min(text.find('\n'), text.size()));
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r')) text.pop_back();
  return text;
}

bool is_commit(std::string_view text) {
  const bool has_size = text.size() == 40 || text.size() == 64;  // SHA-1, SHA-256
  return has_size && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// A name from a file must not lead out of the repository.
bool is_reference(std::string_view name) {
  return name.starts_with("refs/") && name.find("..") == std::string_view::npos;
}

// The directory of the repository's files: .git, or the one that a file .git names.
std::optional<fs::path> git_directory(fs::path folder) {
  std::error_code ignored;
  for (;; folder = folder.parent_path()) {
    const fs::path git = folder / ".git";
    if (fs::is_regular_file(git, ignored)) {
      constexpr std::string_view kPrefix = "gitdir: ";
      const std::string line = line_of_file(git);
      if (line.starts_with(kPrefix)) return folder / line.substr(kPrefix.size());
    }
    if (fs::is_regular_file(git / "HEAD", ignored)) return git;
    if (!folder.has_relative_path()) return std::nullopt;
  }
}

// Lines of packed-refs: "COMMIT NAME"; others begin with # or ^.
std::string packed_commit(const fs::path& repository, const std::string& name) {
  const std::string text = text_of_file(repository / "packed-refs", kMaxPackedBytes);
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const std::string_view line = std::string_view(text).substr(start, end - start);
    const std::size_t space = line.find(' ');
    if (space != std::string_view::npos && line.substr(space + 1) == name) {
      const std::string_view commit = line.substr(0, space);
      return is_commit(commit) ? std::string(commit) : std::string();
    }
    start = end + 1;
  }
  return {};
}

GitCommit commit_of(const fs::path& git) {
  constexpr std::string_view kLink = "ref: ", kBranches = "refs/heads/";
  // A worktree shares the references of its repository, but has a HEAD of its own.
  const std::string shared = line_of_file(git / "commondir");
  const fs::path repository = shared.empty() ? git : git / shared;
  GitCommit found;
  std::string text = line_of_file(git / "HEAD");
  for (int i = 0; i < kMostLinks && text.starts_with(kLink); ++i) {
    const std::string name = text.substr(kLink.size());
    if (!is_reference(name) || name == "refs/heads/.invalid") return {};  // the latter: reftable
    if (i == 0 && name.starts_with(kBranches)) found.branch = name.substr(kBranches.size());
    text = line_of_file(git / name);
    if (text.empty()) text = line_of_file(repository / name);
    if (text.empty()) text = packed_commit(repository, name);
  }
  if (is_commit(text)) found.commit = text;
  return found;
}

std::optional<fs::path> repository_of(const fs::path& folder) {
  std::error_code error;
  const fs::path whole = fs::canonical(folder, error);
  return error ? std::nullopt : git_directory(whole);
}

}  // namespace

GitCommit git_commit_of_project(const fs::path& config) noexcept try {
  std::optional<fs::path> git;
  if (!config.empty()) git = repository_of(fs::absolute(config).parent_path());
  if (!git) git = repository_of(".");
  return git ? commit_of(*git) : GitCommit();
} catch (const std::exception&) {
  return {};
}

}  // namespace kindling
