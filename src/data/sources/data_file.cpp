#include "data/sources/data_file.h"

#include <cstdlib>
#include <string>

#include "kindling/base/error.h"
#include "kindling/data/data_directory.h"

namespace kindling {

void require_data_file(const std::filesystem::path& path, const char* key, const char* kind) {
  const std::string with_article = kind, without_article = with_article.substr(with_article.find(' '));
  if (path.empty())
    throw ConfigError(
        {.place = std::string("data.") + key, .found = "no file is given", .wanted = with_article});
  if (!std::filesystem::exists(path))
    throw DataError({.place = path.string(),
                     .found = "no such file",
                     .wanted = "the" + without_article + " of data." + key,
                     .remedy = "relative paths are relative to the config file's directory"});
}

std::string how_to_fetch(const std::string& name, const std::optional<std::filesystem::path>& root) {
  const std::string command = "kindling data fetch " + name;
  if (root) return "`" + command + " data.root=" + root->string() + "` prints how to download them";
  return "`" + command + "` prints how to download them; or set data.root to their directory";
}

std::filesystem::path data_directory(const std::string& name) {
  if (const char* set = std::getenv("KINDLING_DATA"); set != nullptr && *set != '\0')
    return std::filesystem::path(set) / name;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0')
    return std::filesystem::path(cache) / "kindling" / name;
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home != nullptr ? home : ".") / ".cache" / "kindling" / name;
}

}  // namespace kindling
