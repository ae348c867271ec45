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

// Nothing for directories that cannot be read.
std::vector<fs::path> matches_in(const fs::path& folder, const std::string& pattern) {
  std::vector<fs::path> found;
  std::error_code error;
  fs::directory_iterator entries(folder.empty() ? fs::path(".") : folder, error), end;
  for (; !error && entries != end; entries.increment(error)) {
    const std::string name = entries->path().filename();
    if (name.front() == '.' && pattern.front() != '.') continue;
    if (matches(name, pattern)) found.push_back(folder / name);
  }
  return found;
}

}  // namespace

bool is_file_pattern(const fs::path& path) { return is_pattern(path.string()) && !fs::exists(path); }

std::vector<fs::path> files_of(const fs::path& pattern) {
  if (!is_file_pattern(pattern)) return {pattern};
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
  std::erase_if(found, [](const fs::path& path) { return !fs::is_regular_file(path); });
  if (found.empty())
    throw DataError({.place = pattern.string(),
                     .found = "no file has such a name",
                     .wanted = "a pattern of files, in which * matches any characters",
                     .remedy = "relative paths are relative to the config file's directory"});
  std::ranges::sort(found, {}, [](const fs::path& path) { return path.string(); });
  return found;
}

}  // namespace kindling
