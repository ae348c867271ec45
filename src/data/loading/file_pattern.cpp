#include "data/loading/file_pattern.h"

#include <algorithm>
#include <string>
#include <system_error>

#include "kindling/base/error.h"
#include "kindling/base/name_pattern.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

bool is_pattern(const std::string& name) { return name.find_first_of("*?") != std::string::npos; }

bool has_name(const std::string& name, const std::string& pattern) {
  if (name.empty() || (name.front() == '.' && !pattern.starts_with('.'))) return false;
  return matches(name, pattern);
}

// Nothing for directories that cannot be read.
std::vector<fs::path> matches_in(const fs::path& folder, const std::string& pattern) {
  std::vector<fs::path> found;
  std::error_code error;
  fs::directory_iterator entries(folder.empty() ? fs::path(".") : folder, error), end;
  for (; !error && entries != end; entries.increment(error)) {
    const std::string name = entries->path().filename();
    if (has_name(name, pattern)) found.push_back(folder / name);
  }
  return found;
}

// Returns the paths that match, whatever they are; without patterns, the path, which may not exist.
std::vector<fs::path> paths_of(const fs::path& pattern) {
  std::vector<fs::path> found{fs::path()};
  for (const fs::path& part : pattern) {
    std::vector<fs::path> next;
    for (const fs::path& folder : found) {
      const std::vector<fs::path> matching =
          is_pattern(part.string()) ? matches_in(folder, part.string()) : std::vector{folder / part};
      next.insert(next.end(), matching.begin(), matching.end());
    }
    found = std::move(next);
  }
  return found;
}

}  // namespace

bool is_file_pattern(const fs::path& path) { return is_pattern(path.string()) && !fs::exists(path); }

std::vector<fs::path> files_of(const fs::path& pattern) {
  if (!is_file_pattern(pattern)) return {pattern};
  std::vector<fs::path> found = paths_of(pattern);
  std::erase_if(found, [](const fs::path& path) { return !fs::is_regular_file(path); });
  if (found.empty())
    throw DataError({.place = pattern.string(),
                     .found = "no file has such a name",
                     .wanted = "a pattern of files, in which * matches any characters",
                     .remedy = "relative paths are relative to the config file's directory"});
  std::ranges::sort(found, {}, [](const fs::path& path) { return path.string(); });
  return found;
}

bool belongs_to_pattern(const fs::path& file, const fs::path& pattern) {
  if (!is_file_pattern(pattern) || !has_name(file.filename().string(), pattern.filename().string()))
    return false;
  std::error_code ignored;
  const fs::path folder = fs::absolute(file).parent_path();
  return std::ranges::any_of(paths_of(pattern.parent_path()), [&](const fs::path& known) {
    return fs::equivalent(known.empty() ? fs::path(".") : known, folder, ignored);
  });
}

}  // namespace kindling
